// Backs ncclMemAlloc on host devices with memory that other processes can map later.
// Owner: one for the process (comm/process.h). Any thread may call; one lock, held while mapping by takeBack() only.
// 1. A pointer that it returned stays valid until it is freed, whatever happens to communicators.
#pragma once

#include <atomic>
#include <cstdint>
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
  /// Takes the whole pages of [data, data + bytes), which isShared() said yes to, back from all other processes, those included that have
  /// mapped them: they become fresh memory, zeroed, which isShared() says no to, as does what lies between pages that were taken at
  /// different times. The bytes before and behind are left. For memory whose content is lost anyway, where somebody may write who cannot be
  /// told to stop. False when the kernel has no memory for it.
  bool takeBack(const void* data, uint64_t bytes) noexcept;
  /// How often that has been done: what isShared() said before holds until it changes.
  uint64_t timesTaken() const { return timesTaken_.load(std::memory_order_acquire); }  // pairs with takeBack()

 private:
  struct Region {
    Mapping mapping;
    uint64_t takenFrom = 0;  // what takeBack() took, and what lies between: in bytes from its start
    uint64_t takenTo = 0;
  };
  struct Part {
    Region* region = nullptr;  // null: not all of it lies in one
    uint64_t begin = 0;        // in bytes from its start
  };
  Part find(const void* data, uint64_t bytes) const;

  mutable std::mutex mutex_;
  mutable std::map<const void*, Region> live_;  // by address
  std::atomic<uint64_t> timesTaken_{0};
  std::optional<ExportTable> table_;  // once there are others
};

}  // namespace tutti::memory
