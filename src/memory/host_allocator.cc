#include "memory/host_allocator.h"

#include <iterator>
#include <utility>

namespace tutti::memory {

Result<void*> HostAllocator::allocate(Bytes size) {
  Result<Mapping> mapping = Mapping::shareable(size);
  if (!mapping) return tl::unexpected(std::move(mapping).error());
  void* data = mapping->data();
  const std::lock_guard lock(mutex_);
  if (table_) table_->add(data, mapping->size(), mapping->fd());
  live_.emplace(data, std::move(*mapping));
  return data;
}

bool HostAllocator::free(void* pointer) {
  Mapping released;  // declared before the lock: unmapped after it is gone
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(pointer);
  if (it == live_.end()) return false;
  if (table_) table_->remove(pointer);
  released = std::move(it->second);
  live_.erase(it);
  return true;
}

int HostAllocator::shareTable() {
  const std::lock_guard lock(mutex_);
  if (!table_) {
    auto table = ExportTable::create();
    if (!table) return -1;
    table_ = std::move(*table);
    for (const auto& [data, mapping] : live_) table_->add(data, mapping.size(), mapping.fd());
  }
  return table_->fd();
}

bool HostAllocator::isShared(const void* data, uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  if (!table_) return false;
  const auto after = live_.upper_bound(data);
  if (after == live_.begin()) return false;
  const auto& [base, mapping] = *std::prev(after);
  const auto offset = static_cast<uint64_t>(static_cast<const std::byte*>(data) - static_cast<const std::byte*>(base));
  return offset <= mapping.size().value && bytes <= mapping.size().value - offset;
}

size_t HostAllocator::liveAllocations() const {
  const std::lock_guard lock(mutex_);
  return live_.size();
}

}  // namespace tutti::memory
