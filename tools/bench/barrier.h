// Where the rank threads of a benchmark meet: leaves all of them running at nearly the same time, and can be given up.
//
// Any number of meetings; each by all `members` threads. Waiters spin, then yield their core, then (after a millisecond) sleep.
#pragma once

#include <atomic>
#include <cstdint>

namespace tutti::bench {

class Barrier {
 public:
  explicit Barrier(int members);

  /// False when the barrier was given up: now or while waiting.
  bool meet();

  /// Lets everybody go, for good. From any thread.
  void giveUp() { isGivenUp_.store(true, std::memory_order_release); }  // pairs with the acquire in meet()
  bool isGivenUp() const { return isGivenUp_.load(std::memory_order_acquire); }

 private:
  const int members_;
  const int spins_;  ///< 0 with more members than cores: spinning would only keep the others away
  /// Members that have arrived at this meeting. Added to by each (acq_rel), reset by the last one before it opens the round.
  alignas(64) std::atomic<int> arrived_{0};
  /// Meetings held. Written by the last arrival (release), polled by the others (acquire).
  alignas(64) std::atomic<uint64_t> round_{0};
  alignas(64) std::atomic<bool> isGivenUp_{false};
};

}  // namespace tutti::bench
