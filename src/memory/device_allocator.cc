#include "memory/device_allocator.h"

#include <utility>

namespace tutti::memory {

Result<void*> DeviceAllocator::allocate(const Gpu& gpu, Budget& budget, Bytes bytes) {
  auto memory = DeviceMemory::allocate(gpu, bytes, gpu.accessors());
  if (!memory) return tl::unexpected(std::move(memory).error());
  if (Status status = budget.charge(Purpose::User, memory->size()); !status.ok()) return tl::unexpected(std::move(status));
  const driver::cuda::DevicePtr address = memory->address();
  const std::lock_guard lock(mutex_);
  live_.insert_or_assign(address, Live{std::move(*memory), &budget});
  return reinterpret_cast<void*>(address);
}

bool DeviceAllocator::free(void* pointer) {
  Live freed;
  {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(reinterpret_cast<driver::cuda::DevicePtr>(pointer));
    if (found == live_.end()) return false;
    freed = std::move(found->second);
    live_.erase(found);
  }
  freed.budget->credit(Purpose::User, freed.memory.size());
  return true;
}

size_t DeviceAllocator::liveAllocations() const {
  const std::lock_guard lock(mutex_);
  return live_.size();
}

}  // namespace tutti::memory
