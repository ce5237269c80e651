// ncclMemAlloc and ncclMemFree for GPUs.
//
// Owner: one for the process (comm/process.h). Any thread may call; the lock is not held while the driver works.
// 1. A pointer that it returned stays valid until it is freed, whatever happens to communicators.
// 2. Virtual memory where the device has it, accessible to every device of the process that can reach it, and exportable; else plain
// memory.
#pragma once

#include <map>
#include <mutex>
#include <optional>

#include "memory/device_budget.h"
#include "memory/device_memory.h"

namespace tutti::memory {

class DeviceAllocator {
 public:
  /// At least `bytes` (> 0) on `gpu`, not zeroed; counted in `budget` as the user's. Both must outlive the memory.
  Result<void*> allocate(const Gpu& gpu, Budget& budget, Bytes bytes);
  /// False when `pointer` is not the start of a live allocation of this allocator; nothing is changed then.
  bool free(void* pointer);
  size_t liveAllocations() const;

 private:
  struct Live {
    DeviceMemory memory;
    Budget* budget = nullptr;
  };
  mutable std::mutex mutex_;
  std::map<driver::cuda::DevicePtr, Live> live_;
};

}  // namespace tutti::memory
