// The calls of all ranks, moved on by hand in one thread, and buffers for them.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "exec/host/operation.h"
#include "planned_ranks.h"

namespace tutti::exec::host {

/// A call of every rank, moved on by hand in one thread.
class Interleaved {
 public:
  void add(PlannedCall call) {
    calls_.push_back(std::move(call));
    operations_.emplace_back().start(calls_.back());
    polls_.push_back(Poll::Pending);
  }

  Poll advance(size_t i) { return polls_[i] = operations_[i].advance(); }

  /// Round after round in the order given (all, forwards, if none is); false when nothing moves any more before all are ready.
  bool run(std::vector<size_t> order = {}) {
    if (order.empty())
      for (size_t i = 0; i < operations_.size(); ++i) order.push_back(i);
    for (;;) {
      bool moved = false;
      bool pending = false;
      for (const size_t i : order) {
        if (polls_[i] != Poll::Pending) continue;
        if (advance(i) == Poll::Failed) return false;
        pending = pending || polls_[i] == Poll::Pending;
        moved = moved || operations_[i].moved();
      }
      if (!pending) return true;
      if (!moved) return false;
    }
  }

  Operation& operator[](size_t i) { return operations_[i]; }
  Poll poll(size_t i) const { return polls_[i]; }

 private:
  std::deque<PlannedCall> calls_;
  std::deque<Operation> operations_;
  std::vector<Poll> polls_;
};

using Buffers = std::vector<std::vector<int32_t>>;

inline Buffers filled(int32_t ranks, size_t count) {
  Buffers buffers;
  for (int32_t r = 0; r < ranks; ++r) buffers.push_back(numbers(r, count));
  return buffers;
}

inline Buffers empty(int32_t ranks, size_t count) { return Buffers(static_cast<size_t>(ranks), std::vector<int32_t>(count, -1)); }

}  // namespace tutti::exec::host
