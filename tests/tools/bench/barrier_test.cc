#include "bench/barrier.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace tutti::bench::barrier_test {
namespace {

TEST(Barrier, NobodyLeavesBeforeTheLastArrives) {
  constexpr int kMembers = 5;
  constexpr int kRounds = 300;
  Barrier barrier(kMembers);
  std::atomic<int> arrivals{0};
  std::atomic<int> early{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kMembers; ++i) {
    threads.emplace_back([&] {
      for (int round = 1; round <= kRounds; ++round) {
        arrivals.fetch_add(1);
        if (!barrier.meet()) early.fetch_add(1);
        if (arrivals.load() < round * kMembers) early.fetch_add(1);
        if (!barrier.meet()) early.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(early.load(), 0);
}

TEST(Barrier, GivingUpFreesEverybody) {
  Barrier barrier(3);
  std::atomic<int> freed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] { freed += barrier.meet() ? 0 : 1; });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(freed.load(), 0);
  barrier.giveUp();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(freed.load(), 2);
  EXPECT_FALSE(barrier.meet());
}

}  // namespace
}  // namespace tutti::bench::barrier_test
