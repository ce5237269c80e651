#include "exec/host/reduce/stream.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "exec/host/reduce/reduce.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tutti::exec::host {
namespace {

// Below this, the fence and the lost cache lines cost more than the write-allocation that streaming saves.
constexpr size_t kMinStreamBytes = 4096;

}  // namespace

#if defined(__SSE2__)
void streamBytes(void* dst, const void* src, size_t bytes) {
  constexpr size_t kVector = sizeof(__m128i);
  auto* to = static_cast<char*>(dst);
  const auto* from = static_cast<const char*>(src);
  const size_t head = std::min(bytes, -reinterpret_cast<uintptr_t>(to) % kVector);
  std::memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  for (; bytes >= kVector; to += kVector, from += kVector, bytes -= kVector) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  std::memcpy(to, from, bytes);
}

void fenceStreams() { _mm_sfence(); }
#else
void streamBytes(void* dst, const void* src, size_t bytes) { std::memcpy(dst, src, bytes); }

void fenceStreams() {}
#endif

void copyBytes(void* dst, const void* src, size_t bytes, bool nonTemporal) {
  if (dst == src || bytes == 0) return;
  if (!nonTemporal || bytes < kMinStreamBytes) {
    std::memcpy(dst, src, bytes);
    return;
  }
  streamBytes(dst, src, bytes);
  fenceStreams();
}

}  // namespace tutti::exec::host
