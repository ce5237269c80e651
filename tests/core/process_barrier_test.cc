#include "core/process_barrier.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace tutti {
namespace {

/// Each round both threads store their own word, then load the other's: never may both miss what the other stored.
TEST(ProcessBarrier, OneOfTwoSeesTheOther) {
  ASSERT_TRUE(takesProcessBarriers()) << "does this kernel have membarrier?";
  constexpr int kRounds = 2000;
  alignas(64) std::atomic<int> often{0};
  alignas(64) std::atomic<int> seldom{0};
  alignas(64) std::atomic<int> round{0};
  alignas(64) std::atomic<int> seenByOften{0};
  alignas(64) std::atomic<int> done{0};
  std::thread thread([&] {
    for (int r = 1; r <= kRounds; ++r) {
      while (round.load(std::memory_order_acquire) != r) {
      }
      often.store(r, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      seenByOften.store(seldom.load(std::memory_order_relaxed), std::memory_order_relaxed);
      done.store(r, std::memory_order_release);
    }
  });
  for (int r = 1; r <= kRounds; ++r) {
    round.store(r, std::memory_order_release);
    seldom.store(r, std::memory_order_relaxed);
    processBarrier();
    const int seen = often.load(std::memory_order_relaxed);
    while (done.load(std::memory_order_acquire) != r) {
    }
    ASSERT_TRUE(seen == r || seenByOften.load(std::memory_order_relaxed) == r) << "round " << r;
  }
  thread.join();
}

}  // namespace
}  // namespace tutti
