#include "plan/cache.h"

#include <utility>

namespace tutti::plan {

size_t Cache::Hash::operator()(const Shape& shape) const {
  uint64_t hash = 0x9e3779b97f4a7c15;
  const auto mix = [&](uint64_t value) { hash = (hash ^ value) * 0xff51afd7ed558ccd, hash ^= hash >> 32; };
  mix(static_cast<uint64_t>(shape.collective) << 16 | static_cast<uint64_t>(shape.type) << 8 | static_cast<uint64_t>(shape.op));
  mix(shape.count);
  mix(static_cast<uint64_t>(static_cast<uint32_t>(shape.root.value)) << 1 | (shape.receives ? 1 : 0));
  mix(shape.scaling.factor ^ static_cast<uint64_t>(static_cast<uint32_t>(shape.scaling.divisor)));
  return hash;
}

std::shared_ptr<const exec::host::HostPlan> Cache::find(const Shape& shape) {
  if (!plans_.empty() && plans_.front().first == shape) return plans_.front().second;  // the same call again
  const auto found = index_.find(shape);
  if (found == index_.end()) return nullptr;
  plans_.splice(plans_.begin(), plans_, found->second);
  return plans_.front().second;
}

void Cache::insert(const Shape& shape, std::shared_ptr<const exec::host::HostPlan> plan) {
  if (const auto known = index_.find(shape); known != index_.end()) plans_.erase(known->second);
  plans_.emplace_front(shape, std::move(plan));
  index_[shape] = plans_.begin();
  if (plans_.size() > capacity_) {
    index_.erase(plans_.back().first);
    plans_.pop_back();
  }
}

}  // namespace tutti::plan
