// Hands out parts of [0, size): who lies where in a stretch of memory or addresses, without touching it.
//
// Owner: the holder. Not thread-safe.
// 1. The lowest part that fits is taken, and what is given back merges with its neighbours: ranks that take and give the same sizes in the
//    same order get the same offsets.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "core/ids.h"

namespace tutti::memory {

class Offsets {
 public:
  explicit Offsets(Bytes size) : size_(size.value) {
    if (size_ != 0) free_[0] = size_;
  }
  /// `bytes` (> 0) at a multiple of `alignment` (> 0); nothing when no part is large enough.
  std::optional<uint64_t> take(uint64_t bytes, uint64_t alignment);
  /// What take() gave, with the same size.
  void give(uint64_t offset, uint64_t bytes);
  bool empty() const { return free_.size() == 1 && free_.begin()->second == size_; }  ///< nothing is taken

 private:
  uint64_t size_;
  std::map<uint64_t, uint64_t> free_;  // bytes by offset; no two touch
};

}  // namespace tutti::memory
