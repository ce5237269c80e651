// Plans by shape: the second identical call costs a look-up.
//
// Owner: the communicator; used by the thread that uses it. Bounded: the oldest plans go first.
#pragma once

#include <list>
#include <unordered_map>

#include "plan/planner.h"

namespace tutti::plan {

class Cache {
 public:
  explicit Cache(size_t capacity) : capacity_(capacity) {}

  /// Null when the shape has no plan yet.
  std::shared_ptr<const exec::host::HostPlan> find(const Shape& shape);
  void insert(const Shape& shape, std::shared_ptr<const exec::host::HostPlan> plan);
  size_t size() const { return plans_.size(); }

 private:
  struct Hash {
    size_t operator()(const Shape& shape) const;
  };
  using Entry = std::pair<Shape, std::shared_ptr<const exec::host::HostPlan>>;

  size_t capacity_;
  std::list<Entry> plans_;  // most recently used first
  std::unordered_map<Shape, std::list<Entry>::iterator, Hash> index_;
};

}  // namespace tutti::plan
