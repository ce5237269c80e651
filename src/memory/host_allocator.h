// Backs ncclMemAlloc on host devices with memory that other processes can map later.
// Owner: one for the process (comm/process.h). Any thread may call; one lock, never held while mapping.
// 1. A pointer that it returned stays valid until it is freed, whatever happens to communicators.
#pragma once

#include <mutex>
#include <unordered_map>

#include "memory/mapping.h"

namespace tutti::memory {

class HostAllocator {
 public:
  /// At least `size` bytes (> 0), page-aligned, zeroed. SystemError when the kernel has none.
  Result<void*> allocate(Bytes size);
  /// False when `pointer` is not the start of a live allocation; nothing is changed then.
  bool free(void* pointer);
  size_t liveAllocations() const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<void*, Mapping> live_;
};

}  // namespace tutti::memory
