#include "core/clock.h"

#include <gtest/gtest.h>

#include <thread>

namespace tutti::clock_test {
namespace {
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(RealClock, NeverGoesBackAndSleepsLongEnough) {
  Clock& clock = realClock();
  const Nanoseconds start = clock.now();
  clock.sleepFor(milliseconds(5));
  const Nanoseconds end = clock.now();
  EXPECT_GE(end - start, milliseconds(5));
  EXPECT_LT(end - start, seconds(5));
  clock.sleepFor(Nanoseconds(0));
  clock.sleepFor(Nanoseconds(-1));
  EXPECT_GE(clock.now(), end);
}

TEST(ManualClock, StandsStillUntilItIsMoved) {
  ManualClock clock(ManualClock::Sleep::MovesTime, seconds(10));
  EXPECT_EQ(clock.now(), seconds(10));
  clock.advance(milliseconds(1));
  EXPECT_EQ(clock.now(), seconds(10) + milliseconds(1));
  clock.advance(milliseconds(-5));
  EXPECT_EQ(clock.now(), seconds(10) + milliseconds(1)) << "time never goes back";
}

TEST(ManualClock, ASleeperMovesTheTime) {
  ManualClock clock;
  clock.sleepFor(seconds(3600));
  clock.sleepFor(Nanoseconds(-1));
  EXPECT_EQ(clock.now(), seconds(3600));
}

TEST(ManualClock, ASleeperCanWaitForAnotherThread) {
  ManualClock clock(ManualClock::Sleep::Blocks);
  std::atomic<bool> awake{false};
  std::thread sleeper([&] {
    clock.sleepFor(seconds(10));
    awake.store(true);
  });
  while (clock.sleepers() == 0) std::this_thread::yield();
  clock.advance(seconds(9));
  std::this_thread::sleep_for(milliseconds(10));
  EXPECT_FALSE(awake.load());
  clock.advance(seconds(1));
  sleeper.join();
  EXPECT_TRUE(awake.load());
  EXPECT_EQ(clock.sleepers(), 0);
}

}  // namespace
}  // namespace tutti::clock_test
