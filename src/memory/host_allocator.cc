#include "memory/host_allocator.h"

#include <algorithm>
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

template <class Live>
auto HostAllocator::find(Live& live, const void* data, uint64_t bytes, uint64_t& begin) -> decltype(live.begin()) {
  auto at = live.upper_bound(data);
  if (at == live.begin()) return live.end();
  --at;
  begin = static_cast<uint64_t>(static_cast<const std::byte*>(data) - static_cast<const std::byte*>(at->first));
  const uint64_t size = at->second.mapping.size().value;
  return begin <= size && bytes <= size - begin ? at : live.end();
}

bool HostAllocator::isShared(const void* data, uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  if (!table_) return false;
  uint64_t begin = 0;
  const auto at = find(live_, data, bytes, begin);
  if (at == live_.end()) return false;
  const Region& region = at->second;
  return begin + bytes <= region.takenFrom || begin >= region.takenTo;
}

bool HostAllocator::takeBack(const void* data, uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  uint64_t begin = 0;
  const auto at = find(live_, data, bytes, begin);
  if (at == live_.end()) return true;
  Region& region = at->second;
  const uint64_t page = pageBytes();
  const uint64_t from = (begin + page - 1) / page * page;
  const uint64_t to = (begin + bytes) / page * page;
  if (from >= to) return true;
  if (!region.mapping.renew(from, to)) return false;
  region.takenFrom = region.takenTo == 0 ? from : std::min(region.takenFrom, from);
  region.takenTo = std::max(region.takenTo, to);
  return true;
}

size_t HostAllocator::liveAllocations() const {
  const std::lock_guard lock(mutex_);
  return live_.size();
}

}  // namespace tutti::memory
