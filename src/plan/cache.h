// Plans by shape: the second identical call costs a look-up.
//
// Owner: the communicator; used by the thread that uses it. Bounded: the oldest plans go first.
#pragma once

#include <list>
#include <memory>
#include <unordered_map>
#include <utility>

#include "plan/planner.h"

namespace tutti::plan {

struct ShapeHash {
  size_t operator()(const Shape& shape) const;
};

/// `Plan`: what is kept of a shape, a plan of the host's or of a device's with whatever its caller has made of it.
template <class Plan>
class PlanCache {
 public:
  explicit PlanCache(size_t capacity) : capacity_(capacity) {}

  /// Null when the shape has no plan yet.
  std::shared_ptr<Plan> find(const Shape& shape) {
    if (!plans_.empty() && plans_.front().first == shape) return plans_.front().second;  // the same call again
    const auto found = index_.find(shape);
    if (found == index_.end()) return nullptr;
    plans_.splice(plans_.begin(), plans_, found->second);
    return plans_.front().second;
  }

  /// In place of an older one.
  void insert(const Shape& shape, std::shared_ptr<Plan> plan) {
    if (const auto known = index_.find(shape); known != index_.end()) plans_.erase(known->second);
    plans_.emplace_front(shape, std::move(plan));
    index_[shape] = plans_.begin();
    if (plans_.size() > capacity_) {
      index_.erase(plans_.back().first);
      plans_.pop_back();
    }
  }

  size_t size() const { return plans_.size(); }

 private:
  using Entry = std::pair<Shape, std::shared_ptr<Plan>>;

  size_t capacity_;
  std::list<Entry> plans_;  // most recently used first
  std::unordered_map<Shape, typename std::list<Entry>::iterator, ShapeHash> index_;
};

using Cache = PlanCache<const exec::host::HostPlan>;

}  // namespace tutti::plan
