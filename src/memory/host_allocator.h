// Backs ncclMemAlloc on host devices with memory that other processes can map later.
// Owner: one for the process (comm/process.h). Any thread may call; one lock, never held while mapping.
// 1. A pointer that it returned stays valid until it is freed, whatever happens to communicators.
#pragma once

#include <map>
#include <mutex>
#include <optional>

#include "memory/exports.h"
#include "memory/mapping.h"

namespace tutti::memory {

class HostAllocator {
 public:
  /// At least `size` bytes (> 0), page-aligned, zeroed. SystemError when the kernel has none.
  Result<void*> allocate(Bytes size);
  /// False when `pointer` is not the start of a live allocation; nothing is changed then.
  bool free(void* pointer);
  size_t liveAllocations() const;
  /// From now on other processes may map what is allocated, as a table says; its descriptor, or -1 where the system has none to give.
  int shareTable();
  /// Whether all of [data, data + bytes) lies in one allocation that other processes may map.
  bool isShared(const void* data, uint64_t bytes) const;

 private:
  mutable std::mutex mutex_;
  std::map<const void*, Mapping> live_;  // by address
  std::optional<ExportTable> table_;     // once there are others
};

}  // namespace tutti::memory
