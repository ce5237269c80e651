#include "observe/ticks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace tutti::observe::ticks_test {
namespace {

TEST(Ticks, NeverGoBackwardsOnOneThread) {
  uint64_t last = readTicks();
  for (int i = 0; i < 100000; ++i) {
    const uint64_t now = readTicks();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(Ticks, RunWithTheClock) {
  using Clock = std::chrono::steady_clock;
  const auto ticksPerSecond = [] {
    const uint64_t ticks = readTicks();
    const auto begin = Clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return static_cast<double>(readTicks() - ticks) / std::chrono::duration<double>(Clock::now() - begin).count();
  };
  const double rate = ticksPerSecond();
  EXPECT_GT(rate, 1e6) << "fine enough to stamp events of a microsecond";
  EXPECT_NEAR(ticksPerSecond() / rate, 1, 0.3) << "steady";
}

TEST(Ticks, ThreadsAgree) {
  const uint64_t before = readTicks();
  uint64_t between = 0;
  std::thread([&between] { between = readTicks(); }).join();
  EXPECT_GE(between, before);
  EXPECT_LE(between, readTicks());
}

}  // namespace
}  // namespace tutti::observe::ticks_test
