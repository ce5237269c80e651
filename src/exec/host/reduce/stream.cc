#include "exec/host/reduce/stream.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/prefetch.h"
#include "exec/host/reduce/reduce.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tutti::exec::host {
namespace {

// Below this, the fence and the lost cache lines cost more than the write-allocation that streaming saves.
constexpr size_t kMinStreamBytes = 4096;

// How far ahead lines of the source are asked for. The processor's own prefetching stops at pages, and starts late in lines that another
// core has: `bench_mpi alltoall --from 16M --to 64M` gained a tenth on a Xeon, nothing on an EPYC.
constexpr size_t kAhead = 1024;

// Claims of 512 bytes at once are dropped in part by an EPYC, and what was read before it was claimed is shared: they are made one by one.
// So far ahead, or twice as far: `bench_mpi broadcast --from 64K --to 4M`. Of shorter values too much lies before the first claim.
constexpr size_t kClaimedAhead = 512;
constexpr size_t kLeastClaimedBytes = 8192;

}  // namespace

#if defined(__SSE2__)
namespace {

constexpr size_t kVector = sizeof(__m128i);
constexpr size_t kLine = 4 * kVector;

/// Line by line, the source's asked for ahead of time. `claims`: for writing, as copyClaimed() says. `streams`: past the cache.
template <bool claims, bool streams>
void copyLines(char* to, const char* from, size_t bytes) {
  const auto store = [](char* at, __m128i value) {
    if constexpr (streams) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(at), value);
    } else {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(at), value);
    }
  };
  const auto load = [](const char* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); };
  if constexpr (streams) {
    const size_t head = std::min(bytes, -reinterpret_cast<uintptr_t>(to) % kVector);
    std::memcpy(to, from, head);
    to += head, from += head, bytes -= head;
  }
  for (; bytes >= kLine; to += kLine, from += kLine, bytes -= kLine) {
    if constexpr (claims) {
      if (bytes > kClaimedAhead) prefetchForWrite(from + kClaimedAhead);  // what lies behind the source may be being written
    } else {
      prefetch(from + kAhead);
    }
    for (size_t at = 0; at < kLine; at += kVector) store(to + at, load(from + at));
  }
  for (; bytes >= kVector; to += kVector, from += kVector, bytes -= kVector) store(to, load(from));
  std::memcpy(to, from, bytes);
}

}  // namespace

void streamBytes(void* dst, const void* src, size_t bytes) {
  copyLines<false, true>(static_cast<char*>(dst), static_cast<const char*>(src), bytes);
}

void claimBytes(void* dst, const void* src, size_t bytes, bool nonTemporal) {
  if (!nonTemporal) return copyLines<true, false>(static_cast<char*>(dst), static_cast<const char*>(src), bytes);
  copyLines<true, true>(static_cast<char*>(dst), static_cast<const char*>(src), bytes);
  fenceStreams();
}

void fenceStreams() { _mm_sfence(); }
#else
void streamBytes(void* dst, const void* src, size_t bytes) { std::memcpy(dst, src, bytes); }

void claimBytes(void* dst, const void* src, size_t bytes, bool nonTemporal) { copyBytes(dst, src, bytes, nonTemporal); }

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

namespace {

/// Whether a line that two caches have had costs its next writer more than one that a single cache has. Seen on EPYCs; on a Xeon to claim
/// lines costs the reader more than its writer gains (docs/decisions/0041).
bool claimsLines() {
#if defined(__x86_64__)
  static const bool isAmd = __builtin_cpu_is("amd") != 0;
  return isAmd;
#else
  return false;
#endif
}

}  // namespace

void copyClaimed(void* dst, const void* src, size_t bytes, bool nonTemporal) {
  (bytes >= kLeastClaimedBytes && claimsLines() ? claimBytes : copyBytes)(dst, src, bytes, nonTemporal);
}

}  // namespace tutti::exec::host
