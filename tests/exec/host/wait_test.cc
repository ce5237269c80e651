#include "exec/host/wait.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>

namespace tutti::exec::host::wait_test {
namespace {

using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::steady_clock;

int64_t timeOf(auto&& body) {
  const auto start = steady_clock::now();
  body();
  return duration_cast<microseconds>(steady_clock::now() - start).count();
}

/// Times that this thread gave its core up of its own accord.
long voluntarySwitches() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

TEST(Waiter, SleepsOnlyAfterItHasSpunAndYielded) {
  Waiter waiter(100);
  const long before = voluntarySwitches();
  for (int i = 0; i < 100; ++i) waiter.pause();
  EXPECT_LE(voluntarySwitches() - before, 1) << "spinning gives nothing away";
}

TEST(Waiter, EndsInSleepsOfAtMostAboutAMillisecond) {
  Waiter waiter(0);
  for (int i = 0; i < 4000 + 60; ++i) waiter.pause();  // through the yields and the growing sleeps
  int64_t shortest = INT64_MAX;
  for (int i = 0; i < 10; ++i) shortest = std::min(shortest, timeOf([&] { waiter.pause(); }));
  EXPECT_GE(shortest, 950);
  EXPECT_LE(shortest, 20'000);  // the fastest of ten: slow only where nothing runs on time
}

TEST(Waiter, GivesWayAtOnceAndGoesOnSpinningWhenNobodyNeedsItsCore) {
  Waiter waiter(100);
  waiter.pause(true);
  EXPECT_FALSE(waiter.spins());
  const int64_t spins = timeOf([&] {
    for (int i = 0; i < 100; ++i) waiter.pause();
  });
  for (int i = 0; i < 4100; ++i) waiter.pause(true);
  const int64_t sleeps = timeOf([&] { waiter.pause(true); });
  EXPECT_LT(spins, 100 * 50);
  EXPECT_GE(sleeps, 20) << "who gives way for long falls asleep too";
}

TEST(Waiter, ResetStartsAgainFromSpinning) {
  Waiter waiter(50);
  for (int i = 0; i < 4000 + 120; ++i) waiter.pause();
  waiter.reset();
  const int64_t spins = timeOf([&] {
    for (int i = 0; i < 50; ++i) waiter.pause();
  });
  EXPECT_LT(spins, 50 * 900) << "still asleep";
}

}  // namespace
}  // namespace tutti::exec::host::wait_test
