// Copies of a few bytes, without a call. Stateless; any thread.
#pragma once

#include <cstdint>
#include <cstring>

namespace tutti {

/// `bytes` from one place to another that does not overlap it, or is the same. Long ones are left to memcpy.
inline void copyShort(void* to, const void* from, uint64_t bytes) {
  auto* const dst = static_cast<char*>(to);
  const auto* const src = static_cast<const char*>(from);
  // Two words that may overlap in the middle, both read before either is written.
  const auto copyEnds = [&]<class Word>(Word) {
    Word first;
    Word last;
    std::memcpy(&first, src, sizeof first);
    std::memcpy(&last, src + bytes - sizeof last, sizeof last);
    std::memcpy(dst, &first, sizeof first);
    std::memcpy(dst + bytes - sizeof last, &last, sizeof last);
  };
  if (bytes > 2 * sizeof(uint64_t)) {
    std::memcpy(to, from, bytes);
  } else if (bytes >= sizeof(uint64_t)) {
    copyEnds(uint64_t{});
  } else if (bytes >= sizeof(uint32_t)) {
    copyEnds(uint32_t{});
  } else if (bytes > 0) {
    dst[0] = src[0];
    if (bytes > 1) copyEnds(uint16_t{});
  }
}

}  // namespace tutti
