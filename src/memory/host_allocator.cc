#include "memory/host_allocator.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tutti::memory {

Result<void*> HostAllocator::allocate(Bytes size) {
  Result<Mapping> mapping = Mapping::shareable(size);
  if (!mapping) return tl::unexpected(std::move(mapping).error());
  void* data = mapping->data();
  const std::lock_guard lock(mutex_);
  if (table_) table_->add(data, mapping->size(), mapping->fd());
  live_.emplace(data, Region{.mapping = std::move(*mapping)});
  return data;
}

bool HostAllocator::free(void* pointer) {
  Region released;  // declared before the lock: unmapped after it is gone
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
    for (const auto& [data, region] : live_) table_->add(data, region.mapping.size(), region.mapping.fd());
  }
  return table_->fd();
}

HostAllocator::Part HostAllocator::find(const void* data, uint64_t bytes) const {
  const auto after = live_.upper_bound(data);
  if (after == live_.begin()) return {};
  auto& [start, region] = *std::prev(after);
  const auto begin = static_cast<uint64_t>(static_cast<const std::byte*>(data) - static_cast<const std::byte*>(start));
  const uint64_t size = region.mapping.size().value;
  return begin <= size && bytes <= size - begin ? Part{&region, begin} : Part();
}

bool HostAllocator::isShared(const void* data, uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const Part part = table_ ? find(data, bytes) : Part();
  return part.region != nullptr && (part.begin + bytes <= part.region->takenFrom || part.begin >= part.region->takenTo);
}

bool HostAllocator::takeBack(const void* data, uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  const Part part = find(data, bytes);
  const uint64_t page = pageBytes();
  const uint64_t from = (part.begin + page - 1) / page * page;
  const uint64_t to = (part.begin + bytes) / page * page;
  if (part.region == nullptr || from >= to) return true;
  Region& region = *part.region;
  region.takenFrom = region.takenTo == 0 ? from : std::min(region.takenFrom, from);
  region.takenTo = std::max(region.takenTo, to);
  if (table_) table_->take(region.mapping.data(), region.takenFrom, region.takenTo);
  timesTaken_.fetch_add(1, std::memory_order_release);
  return region.mapping.renew(from, to);
}

size_t HostAllocator::liveAllocations() const {
  const std::lock_guard lock(mutex_);
  return live_.size();
}

}  // namespace tutti::memory
