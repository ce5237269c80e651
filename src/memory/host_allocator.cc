#include "memory/host_allocator.h"

#include <utility>

namespace tutti::memory {

Result<void*> HostAllocator::allocate(Bytes size) {
  Result<Mapping> mapping = Mapping::shareable(size);
  if (!mapping) return tl::unexpected(std::move(mapping).error());
  void* data = mapping->data();
  const std::lock_guard lock(mutex_);
  live_.emplace(data, std::move(*mapping));
  return data;
}

bool HostAllocator::free(void* pointer) {
  Mapping released;  // declared before the lock: unmapped after it is gone
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(pointer);
  if (it == live_.end()) return false;
  released = std::move(it->second);
  live_.erase(it);
  return true;
}

size_t HostAllocator::liveAllocations() const {
  const std::lock_guard lock(mutex_);
  return live_.size();
}

}  // namespace tutti::memory
