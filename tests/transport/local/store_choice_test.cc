#include "transport/local/store_choice.h"

#include <gtest/gtest.h>

namespace tutti::transport::local::store_choice_test {
namespace {

/// A writer whose stores take what the test says, one after the other.
struct Writer {
  /// Times of values through the cache and past it, in nanoseconds.
  struct Costs {
    int64_t through;
    int64_t past;
  };
  /// How many of so many values went past the cache.
  int store(int values, Costs costs, uint64_t bytes = 65536) {
    int past = 0;
    for (int i = 0; i < values; ++i) {
      const bool isPast = choice.isPast(bytes, now);
      const int64_t began = now;
      now += isPast ? costs.past : costs.through;
      choice.took(bytes, isPast, began, now);
      now += kBetween;
      past += isPast ? 1 : 0;
    }
    return past;
  }
  static constexpr int64_t kBetween = 1000;
  StoreChoice choice;
  int64_t now = 1'000'000;
};

constexpr Writer::Costs kNear{4900, 4200};
constexpr Writer::Costs kFar{35000, 2300};

TEST(StoreChoice, StaysInTheCacheNearTheReader) {
  Writer writer;
  EXPECT_LE(writer.store(1000, kNear), 2 * 4) << "those that it tries";
}

TEST(StoreChoice, GoesPastItFarFromTheReader) {
  Writer writer;
  EXPECT_GE(writer.store(1000, kFar), 1000 - 2 * 4);
}

TEST(StoreChoice, ResultsHaveABoundOfTheirOwn) {
  constexpr Writer::Costs kSeldom{10'000, 5'500};  // nearly twice as fast
  Writer ofValues;
  EXPECT_LE(ofValues.store(1000, kSeldom), 2 * 4);
  Writer ofResults;
  ofResults.choice = StoreChoice(StoreChoice::kWorthOfResults);
  EXPECT_GE(ofResults.store(1000, kSeldom), 1000 - 2 * 4);
  ofResults.choice = StoreChoice(StoreChoice::kWorthOfResults);
  EXPECT_LE(ofResults.store(1000, {10'000, 7'000}), 2 * 4);
}

TEST(StoreChoice, TriesTheOtherWayLessAndLessOften) {
  Writer writer;
  const int64_t began = writer.now;
  int past = 0;
  while (writer.now < began + StoreChoice::kTryAgainNs) past += writer.store(100, kNear);
  EXPECT_GE(past, 2 * 5);
  EXPECT_LE(past, 2 * 7) << "after 1, 3, 7, 15, 31, 63 ms";
  const int64_t settled = writer.now;
  past = 0;
  while (writer.now < settled + 10 * StoreChoice::kTryAgainNs) past += writer.store(100, kNear);
  EXPECT_GE(past, 2 * 8);
  EXPECT_LE(past, 2 * 11);
}

TEST(StoreChoice, NoticesSoonThatTheReaderHasMovedAwayAndAWhileLaterThatItIsBack) {
  Writer writer;
  (void)writer.store(100'000, kNear);
  EXPECT_GE(writer.store(100, kFar), 100 - 2);
  const int64_t back = writer.now;
  while (writer.now < back + StoreChoice::kTryAgainNs) (void)writer.store(10, kNear);
  EXPECT_LE(writer.store(1000, kNear), 2 * 4);
}

TEST(StoreChoice, MemoryThatIsSlowAtFirstMisleadsItForAMomentOnly) {
  Writer writer;
  (void)writer.store(4, {300'000, 100'000});  // as past the cache is found to take 100 us, and through it no more than the double
  (void)writer.store(4, {150'000, 20'000}, 65536);
  const int64_t began = writer.now;
  int past = 0;
  int values = 0;
  while (past < 50) past += writer.store(1, kFar), ++values;
  EXPECT_LT(writer.now - began, 3 * StoreChoice::kTrySoonNs);
}

TEST(StoreChoice, OneValueThatTookLongHasTaughtItNothing) {
  Writer writer;
  (void)writer.store(100, kNear);
  (void)writer.store(1, {4'000'000, 4'000'000});
  EXPECT_LE(writer.store(100, kNear), 2) << "it may be time to try";
}

TEST(StoreChoice, LongValuesAreNotComparedWithShortOnes) {
  Writer writer;
  (void)writer.store(100, kNear, 16384);
  (void)writer.store(100, kFar, 1 << 20);
  EXPECT_LE(writer.store(100, kNear, 16384), 2);
  EXPECT_GE(writer.store(100, kFar, 1 << 20), 100 - 2 * 2);
  EXPECT_GE(writer.store(100, kFar, uint64_t{1} << 40), 100 - 2 * 2) << "however long";
}

}  // namespace
}  // namespace tutti::transport::local::store_choice_test
