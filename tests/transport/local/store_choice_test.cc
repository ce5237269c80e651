#include "transport/local/store_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "transport/local/pipe.h"

namespace tutti::transport::local::store_choice_test {
namespace {

/// What a value takes through the cache and past it, in nanoseconds; and through it where its place is in no cache.
struct Costs {
  int64_t through;
  int64_t past;
  int64_t cold;
};

constexpr Costs kNear{2100, 5300, 9000};
constexpr Costs kFar{12'000, 4200, 12'000};
/// The least and the most that near and far were seen to differ by.
constexpr Costs kHardlyNear{2100, 2350, 2600};
constexpr Costs kHardlyFar{5500, 4200, 5500};

/// A writer whose values go round through so many places.
struct Writer {
  explicit Writer(size_t places = 8, uint64_t size = 65536, StoreChoice how = StoreChoice())
      : bytes(size), choice(how), isCached(places, 1) {}

  /// How many of so many values went past the cache.
  int store(int values, const Costs& costs) {
    int past = 0;
    for (int i = 0; i < values; ++i) past += storeOne(costs) ? 1 : 0;
    return past;
  }
  bool storeOne(const Costs& costs) {
    at = (at + 1) % isCached.size();
    const bool isPast = choice.isPast(bytes, now);
    const int64_t began = now;
    now += isPast ? costs.past : isCached[at] != 0 ? costs.through : costs.cold;
    isCached[at] = isPast ? 0 : 1;
    choice.took(bytes, isPast, &isCached[at], began, now);
    now += kBetween;
    return isPast;
  }
  int storeFor(int64_t ns, const Costs& costs) {
    int past = 0;
    for (const int64_t end = now + ns; now < end;) past += storeOne(costs) ? 1 : 0;
    return past;
  }

  static constexpr int64_t kBetween = 1000;
  uint64_t bytes;
  StoreChoice choice;
  std::vector<char> isCached;  // of each place
  size_t at = 0;
  int64_t now = 1'000'000;
};

TEST(StoreChoice, StaysInTheCacheNearTheReader) {
  for (const Costs& near : {kNear, kHardlyNear}) {
    Writer writer;
    EXPECT_LE(writer.store(1000, near), 2 * 4) << "those that it tries";
  }
}

TEST(StoreChoice, GoesPastItFarFromTheReader) {
  for (const Costs& far : {kFar, kHardlyFar}) {
    Writer writer;
    EXPECT_GE(writer.store(1000, far), 1000 - 12 * 10) << "what it tries is a lap and a bit";
    EXPECT_GE(writer.store(1000, far), 1000 - 1000 / 10);
  }
}

TEST(StoreChoice, ResultsHaveABoundOfTheirOwn) {
  constexpr Costs kSeldom{10'000, 7'000, 10'000};  // 1.4 times as fast
  EXPECT_GE(Writer().store(1000, kSeldom), 1000 - 12 * 10);
  const StoreChoice ofResults(StoreChoice::kWorthOfResults);
  EXPECT_LE(Writer(1, 65536, ofResults).store(1000, kSeldom), 2 * 4);
  EXPECT_GE(Writer(1, 65536, ofResults).store(1000, {10'000, 5'500, 10'000}), 1000 - 12 * 10);
}

/// Their reader has the lines in a cache of its own when they are written again.
TEST(StoreChoice, ValuesThatDoNotMoveOnHaveABoundOfTheirOwn) {
  EXPECT_LE(Writer(2, kMovingBytes - 1).store(1000, {700, 200, 700}), 2 * 4);
  EXPECT_GE(Writer(2, kMovingBytes - 1).store(1000, {1200, 200, 1200}), 1000 - 12 * 10);
  EXPECT_GE(Writer(2, kMovingBytes).store(1000, {700, 200, 700}), 1000 - 12 * 10);
}

TEST(StoreChoice, TriesTheOtherWayLessAndLessOften) {
  Writer writer;
  const int past = writer.storeFor(StoreChoice::kTryAgainNs, kNear);
  EXPECT_GE(past, 2 * 5);
  EXPECT_LE(past, 2 * 7) << "after 1, 3, 7, 15, 31, 63 ms";
  const int later = writer.storeFor(10 * StoreChoice::kTryAgainNs, kNear);
  EXPECT_GE(later, 2 * 8);
  EXPECT_LE(later, 2 * 11);
}

TEST(StoreChoice, NoticesWithinALapOrTwoThatTheReaderHasMovedAway) {
  for (const size_t places : {1, 8, 64, 128}) {
    Writer writer(places);
    (void)writer.store(100'000, kNear);
    (void)writer.store(4 * static_cast<int>(places) + 80, kFar);
    EXPECT_EQ(writer.store(20, kFar), 20) << places << " places";
  }
}

/// As many places as the pipes and cells of different settings have: more than fit into the caches among them.
TEST(StoreChoice, ComesBackToTheCacheAlthoughEveryPlaceIsSlowToWriteTheFirstTime) {
  for (const size_t places : {1, 2, 4, 16, 64, 128, 512, 1024}) {
    Writer writer(places);
    (void)writer.storeFor(3 * StoreChoice::kTryAgainNs, kFar);
    ASSERT_TRUE(writer.choice.prefersPast(writer.bytes)) << places << " places";
    (void)writer.store(16 * static_cast<int>(places), kNear);  // a rest
    (void)writer.storeFor(2 * StoreChoice::kTryAgainNs, kNear);
    EXPECT_FALSE(writer.choice.prefersPast(writer.bytes)) << places << " places";
    const int64_t began = writer.now;
    const int past = writer.storeFor(1'000'000'000, kNear);
    EXPECT_LE(static_cast<double>(past) * (kNear.past + Writer::kBetween), 0.01 * static_cast<double>(writer.now - began));
  }
}

/// The places of a pipe as it has them: a lap ends when one is written again.
TEST(StoreChoice, ComesBackInTheSlotsOfAPipe) {
  constexpr uint32_t kSlots = 64;
  constexpr uint64_t kSlotBytes = 32 << 10;
  for (const uint64_t bytes : {uint64_t{16} << 10, kSlotBytes}) {
    Writer writer(kSlots * (kSlotBytes / bytes), bytes);
    std::vector<uint64_t> first;
    for (uint64_t message = 0; message < 4 * writer.isCached.size(); ++message)
      first.push_back(message % kSlots * kSlotBytes + placeInRoom(message / kSlots, bytes, kSlotBytes));
    for (size_t i = 0; i + writer.isCached.size() < first.size(); ++i) EXPECT_EQ(first[i], first[i + writer.isCached.size()]);
    (void)writer.storeFor(3 * StoreChoice::kTryAgainNs, kFar);
    (void)writer.storeFor(2 * StoreChoice::kTryAgainNs, kNear);
    EXPECT_FALSE(writer.choice.prefersPast(bytes));
  }
}

TEST(StoreChoice, ValuesThatAreSeldomAreSeldomTried) {
  for (const int burst : {1, 4, 16, 64}) {
    for (const bool isFar : {false, true}) {
      Writer writer;
      const Costs& costs = isFar ? kFar : kNear;
      (void)writer.store(2000, costs);
      int past = 0;
      for (int stored = 0; stored < 6400; stored += burst) {
        past += writer.store(burst, costs);
        writer.now += 100'000'000;
      }
      EXPECT_LE(isFar ? 6400 - past : past, 6400 / 10) << burst << " at a time, " << (isFar ? "far" : "near");
    }
  }
}

TEST(StoreChoice, MemoryThatIsSlowAtFirstMisleadsItForAMomentOnly) {
  Writer writer;
  (void)writer.store(4, {300'000, 100'000, 300'000});
  (void)writer.store(4, {150'000, 20'000, 150'000});
  const int64_t began = writer.now;
  int past = 0;
  while (past < 50) past += writer.store(1, kFar);
  EXPECT_LT(writer.now - began, 4 * StoreChoice::kTrySoonNs);
}

TEST(StoreChoice, PlacesThatOthersHavePushedOutOfTheCacheDoNotMisleadIt) {
  for (const size_t places : {2, 32}) {
    Writer writer(places);
    (void)writer.store(1000, kNear);
    int past = 0;
    for (int i = 0; i < 200; ++i) {
      std::fill(writer.isCached.begin(), writer.isCached.end(), 0);
      past += writer.store(71, kNear);  // anywhere in a lap
    }
    EXPECT_LE(past, 2 * 8) << places << " places";
  }
}

TEST(StoreChoice, AValueThatTookLongHasTaughtItNothing) {
  Writer writer;
  (void)writer.store(100, kNear);
  (void)writer.store(1, {4'000'000, 4'000'000, 4'000'000});
  EXPECT_LE(writer.store(100, kNear), 4) << "it may be time to try";
  Writer far;
  (void)far.store(1000, kFar);
  ASSERT_TRUE(far.choice.prefersPast(far.bytes));
  for (int i = 0; i < 200; ++i) {
    (void)far.store(1, {12'000, 4'000'000, 12'000});
    (void)far.store(50, kFar);
    EXPECT_TRUE(far.choice.prefersPast(far.bytes)) << "the faster of two counts";
  }
}

/// A value that happens to be as fast as never again.
TEST(StoreChoice, AValueThatTookLittleHasTaughtItNothing) {
  Writer writer(128);
  (void)writer.store(2000, kFar);
  ASSERT_TRUE(writer.choice.prefersPast(writer.bytes));
  for (int i = 0; i < 100; ++i) {
    (void)writer.store(1, {2000, 4200, 2000});
    (void)writer.store(499, kFar);
    EXPECT_TRUE(writer.choice.prefersPast(writer.bytes));
  }
}

TEST(StoreChoice, OldNewsOfTheOtherWayIsTriedAgainBeforeItCounts) {
  Writer writer;
  (void)writer.store(10'000, kNear);
  // Everything takes four times as long, as when the clock goes down: what was past the cache before would look fast.
  const int past = writer.store(1000, {4 * kNear.through, 4 * kNear.past, 4 * kNear.cold});
  EXPECT_LE(past, 2 * 3);
}

TEST(StoreChoice, LongValuesAreNotComparedWithShortOnes) {
  StoreChoice choice;
  int64_t now = 0;
  const char place = 0;
  int shortPast = 0;
  int longPast = 0;
  const auto store = [&](uint64_t bytes, const Costs& costs) {
    const bool isPast = choice.isPast(bytes, now);
    const int64_t began = now;
    now += isPast ? costs.past : costs.through;
    choice.took(bytes, isPast, &place, began, now);
    return isPast ? 1 : 0;
  };
  for (int i = 0; i < 1000; ++i) {
    shortPast += store(16384, kNear);
    const int power = i % 2 * 20;  // the same time a byte
    longPast += store(uint64_t{1} << (20 + power), {kFar.through << power, kFar.past << power, 0});
  }
  EXPECT_LE(shortPast, 80);
  EXPECT_GE(longPast, 800) << "however long";
  EXPECT_TRUE(choice.prefersPast(1 << 20));
  EXPECT_FALSE(choice.prefersPast(16384));
  EXPECT_FALSE(choice.prefersPast(StoreChoice::kLeastBytes - 1)) << "is not measured";
}

TEST(StoreChoice, WhatTakesNoTimeAtAllStaysInTheCache) {
  Writer writer;
  EXPECT_LE(writer.store(1000, {0, 0, 0}), 2 * 4);
}

}  // namespace
}  // namespace tutti::transport::local::store_choice_test
