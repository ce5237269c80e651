#include "exec/host/cache_choice.h"

#include <gtest/gtest.h>

namespace tutti::exec::host::cache_choice_test {
namespace {

constexpr uint64_t kTrials = 2 * CacheChoice::kTries;

/// So many calls that take so long either way. How many of them stored their results past the cache.
uint64_t make(CacheChoice& choice, uint64_t calls, int64_t throughNs, int64_t pastNs) {
  uint64_t past = 0;
  for (uint64_t i = 0; i < calls; ++i) {
    const CacheChoice::Call call = choice.begin();
    choice.end(call, call.isPast ? pastNs : throughNs);
    past += call.isPast ? 1 : 0;
  }
  return past;
}

TEST(CacheChoice, TakesTheFasterWayAfterAFewCalls) {
  CacheChoice fast, slow;
  make(fast, kTrials, 1000, 700);
  EXPECT_EQ(make(fast, 100, 1000, 700), 100U);
  make(slow, kTrials, 1000, 1700);
  EXPECT_EQ(make(slow, 100, 1000, 1700), 0U);
}

TEST(CacheChoice, ALittleFasterIsNotWorthResultsThatAreInNoCache) {
  CacheChoice choice;
  make(choice, kTrials, 1000, 920);
  EXPECT_EQ(make(choice, 100, 1000, 920), 0U);
}

TEST(CacheChoice, TriesBothWaysAtTheSameCallsWhateverItHasConcluded) {
  CacheChoice one, other;
  for (uint64_t i = 0; i < 3 * CacheChoice::kPeriod; ++i) {
    const CacheChoice::Call a = one.begin(), b = other.begin();
    one.end(a, a.isPast ? 10 : 20);
    other.end(b, b.isPast ? 20 : 10);
    const bool isTrial = i % CacheChoice::kPeriod < kTrials;
    EXPECT_EQ(a.isPast == b.isPast, isTrial) << i;
  }
}

TEST(CacheChoice, ChangesItsMindWhenTheMachineDoes) {
  CacheChoice choice;
  EXPECT_EQ(make(choice, CacheChoice::kPeriod, 1000, 500), CacheChoice::kPeriod - CacheChoice::kTries);
  EXPECT_EQ(make(choice, CacheChoice::kPeriod, 500, 1000), CacheChoice::kTries);
  EXPECT_EQ(make(choice, CacheChoice::kPeriod, 1000, 500), CacheChoice::kPeriod - CacheChoice::kTries);
}

/// What one way leaves behind lengthens the first call of the other; and a call may be held up by anything.
TEST(CacheChoice, NeitherTheFirstCallOfATrialNorLongOnesCount) {
  CacheChoice choice;
  for (uint64_t i = 0; i < kTrials; ++i) {
    const CacheChoice::Call call = choice.begin();
    const int64_t each = call.isPast ? 1000 : 500;
    const bool isFirst = i % CacheChoice::kTries == 0;
    const bool isLast = i % CacheChoice::kTries == CacheChoice::kTries - 1;
    choice.end(call, isFirst ? each / 10 : isLast ? each : 100 * each);
  }
  EXPECT_EQ(make(choice, 100, 500, 1000), 0U);
}

/// A call that failed has no end; two on their way at once end in any order.
TEST(CacheChoice, CallsThatDoNotEndOrEndLaterChangeNothing) {
  CacheChoice choice;
  make(choice, kTrials, 1000, 500);
  make(choice, CacheChoice::kPeriod - kTrials, 1000, 500);
  for (uint64_t i = 0; i < kTrials; ++i) (void)choice.begin();
  EXPECT_TRUE(choice.begin().isPast) << "nothing new is known";
  EXPECT_TRUE(choice.prefersPast());
  make(choice, CacheChoice::kPeriod - kTrials - 1, 1000, 500);
  for (uint64_t i = 0; i < kTrials; i += 2) {
    const CacheChoice::Call a = choice.begin(), b = choice.begin();
    choice.end(b, b.isPast ? 1000 : 500);
    choice.end(a, a.isPast ? 1000 : 500);
  }
  EXPECT_FALSE(choice.begin().isPast);
}

}  // namespace
}  // namespace tutti::exec::host::cache_choice_test
