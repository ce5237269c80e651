#include "core/gate.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace tutti::gate_test {
namespace {

TEST(Gate, GivesPassesUntilItIsClosed) {
  Gate gate;
  Gate::Pass first = gate.enter();
  EXPECT_TRUE(first);
  gate.close();
  EXPECT_TRUE(gate.isClosed());
  EXPECT_FALSE(gate.enter());
  EXPECT_FALSE(gate.isDrained());
  first.giveBack();
  EXPECT_FALSE(first);
  EXPECT_TRUE(gate.isDrained());
  gate.waitClosed();
}

TEST(Gate, AMovedPassIsReturnedOnce) {
  Gate gate;
  {
    Gate::Pass a = gate.enter();
    Gate::Pass b = std::move(a);
    EXPECT_FALSE(a);
    Gate::Pass c = gate.enter();
    c = std::move(b);  // gives back what it held
    gate.close();
    EXPECT_FALSE(gate.isDrained());
  }
  EXPECT_TRUE(gate.isDrained());
}

TEST(Gate, AnOpenGateIsNotDrained) {
  Gate gate;
  EXPECT_FALSE(gate.isDrained());
}

TEST(Gate, WaitBlocksUntilTheLastPassIsBack) {
  Gate gate;
  std::atomic<bool> returned{false};
  Gate::Pass pass = gate.enter();
  gate.close();
  std::thread waiter([&] {
    gate.waitClosed();
    EXPECT_TRUE(returned.load());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  returned.store(true);
  pass.giveBack();
  waiter.join();
}

TEST(Gate, WaitBlocksUntilSomebodyCloses) {
  Gate gate;
  std::atomic<bool> closing{false};
  std::thread waiter([&] {
    gate.waitClosed();
    EXPECT_TRUE(closing.load());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  closing.store(true);
  gate.close();
  waiter.join();
}

// What was written under a pass is plain data: a missing order shows as a race under the thread sanitizer, and a lost count as
// a wrong sum. The gate is destroyed as soon as the wait is over.
TEST(Gate, WorkUnderPassesIsFinishedAndVisibleAfterTheWait) {
  for (int round = 0; round < 50; ++round) {
    constexpr int kThreads = 4;
    struct alignas(64) Work { uint64_t done = 0; uint64_t counted = 0; };
    std::vector<Work> work(kThreads);
    auto gate = std::make_unique<Gate>();
    std::vector<std::thread> threads;
    std::atomic<int> refused{0};
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        while (true) {
          Gate::Pass pass = gate->enter();
          if (!pass) break;
          ++work[t].done;
        }
        refused.fetch_add(1);
      });
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    gate->close();
    gate->waitClosed();
    for (Work& w : work) w.counted = w.done;
    while (refused.load() != kThreads) std::this_thread::yield();
    gate.reset();
    for (std::thread& thread : threads) thread.join();
    for (const Work& w : work) EXPECT_EQ(w.done, w.counted);
  }
}

}  // namespace
}  // namespace tutti::gate_test
