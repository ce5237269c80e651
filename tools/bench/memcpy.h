// What this machine's memory can move: memcpy on all cores at once, between buffers far larger than the caches.
#pragma once

#include "core/status.h"

namespace tutti::bench {

struct MemcpyRate {
  double gigabytesPerSecond = 0;  ///< decimal; bytes read and bytes written, that is, two for each byte copied
  int threads = 0;
  uint64_t bytesPerThread = 0;
};

/// Takes about half a second and up to 1 GiB of memory while it runs.
Result<MemcpyRate> measureMemcpy();

}  // namespace tutti::bench
