#include "core/process_barrier.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace tutti::process_barrier_test {
namespace {

/// The kernel has not answered yet when the process forks; who asked is not in the child.
TEST(ProcessBarrier, IsThereInAForkedProcess) {
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<bool> isOver{false};
    std::thread other([&isOver] { isOver.wait(false); });  // now it takes a while
    askForProcessBarriers();
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(takesProcessBarriers() && takesBarriersOfOthers() ? 0 : 1);
    int status = -1;
    (void)waitpid(grandchild, &status, 0);
    _exit(status == 0 && takesProcessBarriers() && takesBarriersOfOthers() ? 0 : 2);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

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
}  // namespace tutti::process_barrier_test
