#include "memory/offsets.h"

#include <iterator>

namespace tutti::memory {

std::optional<uint64_t> Offsets::take(uint64_t bytes, uint64_t alignment) {
  for (auto part = free_.begin(); part != free_.end(); ++part) {
    const auto [start, room] = *part;
    const uint64_t skipped = (alignment - start % alignment) % alignment;
    if (skipped > room || bytes > room - skipped) continue;
    free_.erase(part);
    if (skipped != 0) free_[start] = skipped;
    if (bytes < room - skipped) free_[start + skipped + bytes] = room - skipped - bytes;
    return start + skipped;
  }
  return std::nullopt;
}

void Offsets::give(uint64_t offset, uint64_t bytes) {
  auto after = free_.lower_bound(offset);
  if (after != free_.end() && offset + bytes == after->first) {
    bytes += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_[offset] = bytes;
}

}  // namespace tutti::memory
