#include "comm/encounter.h"

#include <gtest/gtest.h>

#include <array>

namespace tutti::comm::encounter_test {
namespace {

TEST(FormGroups, MakesOneOfEachColour) {
  const Arrival arrivals[] = {{5, 1, 2, 64, 3}, {-9, 0}, {5, -3, 1, 8, 7}, {kNoColor, 0}, {-9, 0}};
  const Grouping grouping = formGroups(arrivals);
  const int32_t expectedRank[] = {1, 0, 0, 0, 1};
  for (size_t r = 0; r < 5; ++r) {
    EXPECT_EQ(grouping.places[r].group < 0, r == 3);
    EXPECT_EQ(grouping.places[r].rank, Rank(expectedRank[r])) << r;
    EXPECT_EQ(grouping.places[r].ranks, r == 3 ? 0 : 2);
  }
  ASSERT_EQ(grouping.members.size(), 2U);
  EXPECT_EQ(grouping.members[0], (std::vector<int32_t>{1, 4}));
  EXPECT_EQ(grouping.members[1], (std::vector<int32_t>{2, 0})) << "in the order of their keys";
  EXPECT_EQ(grouping.places[0].group, grouping.places[2].group);
}

TEST(FormGroups, TheRanksAgree) {
  const Arrival arrivals[] = {{0, 0, 1, 32, 3}, {0, 1, 4, 16, 7}, {0, 2, 2, 20, 1}};
  for (const Place& place : formGroups(arrivals).places) {
    EXPECT_EQ(place.minCtas, 4);
    EXPECT_EQ(place.maxCtas, 16);
    EXPECT_EQ(place.cores, 7) << "what an algorithm is chosen by is the same for all";
  }
}

TEST(FormGroups, RanksHaveTheCoresOfAllTheirSets) {
  Arrival arrivals[] = {{0, 0, 1, 64, 2}, {0, 1, 1, 64, 2}, {0, 2, 1, 64, 3}, {0, 3, 1, 64, 2}};
  const auto cores = [&](std::array<uint64_t, 4> sets) {
    for (size_t r = 0; r < 4; ++r) arrivals[r].coreSet = sets[r];
    return formGroups(arrivals).places[1].cores;
  };
  const auto shares = [&](std::array<uint64_t, 4> sets) {
    for (size_t r = 0; r < 4; ++r) arrivals[r].coreSet = sets[r];
    std::vector<bool> each;
    for (const Place& place : formGroups(arrivals).places) each.push_back(place.sharesCores);
    return each;
  };
  EXPECT_EQ(cores({7, 8, 9, 10}), 9) << "each is bound to its own";
  EXPECT_EQ(cores({7, 7, 9, 7}), 5) << "three share two";
  EXPECT_EQ(cores({0, 0, 0, 0}), 3) << "nobody knows";
  EXPECT_EQ(shares({7, 8, 9, 10}), std::vector<bool>(4)) << "each is bound to its own";
  EXPECT_EQ(shares({7, 7, 9, 7}), (std::vector<bool>{true, true, false, true})) << "also where others, elsewhere, have many";
  EXPECT_EQ(shares({7, 7, 9, 9}), std::vector<bool>(4));
  EXPECT_EQ(shares({0, 0, 0, 0}), std::vector<bool>(4, true));
  for (Arrival& arrival : arrivals) arrival.cores = 1 << 20;
  EXPECT_EQ(cores({7, 8, 9, 10}), 1 << 20);
}

TEST(FormGroups, WhatOneRankDoesNotWantIsDoneByNone) {
  for (const int32_t wanting : {0, 2, 3}) {
    Arrival arrivals[] = {{0, 0}, {0, 1}, {0, 2}};
    for (int32_t r = 0; r < wanting; ++r) arrivals[r].copies = 1;
    for (const Place& place : formGroups(arrivals).places) EXPECT_EQ(place.copies, wanting == 3) << wanting;
  }
}

TEST(FormGroups, OneThatHasFailedIsKnownToItsGroupAlone) {
  Arrival arrivals[] = {{0, 0}, {1, 1}, {0, 2}, {kNoColor, 0}};
  arrivals[2].hasFailed = 1;
  const auto places = formGroups(arrivals).places;
  for (const size_t r : {0u, 2u}) EXPECT_TRUE(places[r].hasFailed) << r;
  for (const size_t r : {1u, 3u}) EXPECT_FALSE(places[r].hasFailed) << r;
}

TEST(FormGroups, AGroupHasItsMembersInTheirNewOrder) {
  Arrival arrivals[] = {{5, 1}, {-9, 0}, {5, -3}};
  for (int32_t r = 0; r < 3; ++r) arrivals[r].gpu = 10 + r;
  const auto members = membersOf(arrivals, formGroups(arrivals).members[1]);
  ASSERT_EQ(members->size(), 2u);
  EXPECT_EQ((*members)[0].gpu, 12);
  EXPECT_EQ((*members)[1].gpu, 10);
}

// Ranks that choose by different constants would choose apart.
TEST(FormGroups, DifferentConstantsAreNobodys) {
  std::vector<Arrival> arrivals(3);
  for (size_t i = 0; i < arrivals.size(); ++i) arrivals[i].key = static_cast<int32_t>(i), arrivals[i].constants = 7;
  for (const Place& place : formGroups(arrivals).places) {
    EXPECT_EQ(place.constants, 7u);
    EXPECT_FALSE(place.constantsDiffer);
  }
  for (const uint32_t other : {0u, 9u}) {
    arrivals[1].constants = other;
    for (const Place& place : formGroups(arrivals).places) {
      EXPECT_EQ(place.constants, 0u);
      EXPECT_TRUE(place.constantsDiffer);
    }
  }
}

/// A host device has no multiprocessors.
TEST(FormGroups, GpusAreAsGoodAsTheLeastOfThem) {
  const auto agreed = [](std::initializer_list<std::pair<int32_t, int32_t>> gpus) {
    std::vector<Arrival> arrivals;
    for (const auto& [multiprocessors, keepsLines] : gpus) {
      Arrival& arrival = arrivals.emplace_back();
      arrival.key = static_cast<int32_t>(arrivals.size());
      arrival.multiprocessors = multiprocessors;
      arrival.keepsLines = arrival.streams = keepsLines;
    }
    return formGroups(arrivals).places;
  };
  for (const Place& place : agreed({{132, 1}, {78, 1}, {132, 1}})) {
    EXPECT_EQ(place.multiprocessors, 78);
    EXPECT_TRUE(place.keepsLines && place.streams);
    EXPECT_FALSE(place.isMixed);
  }
  for (const Place& place : agreed({{132, 1}, {132, 0}, {132, 1}}))
    EXPECT_FALSE(place.keepsLines || place.streams) << "one that does not spoils it for all";
  for (const Place& place : agreed({{132, 1}, {132, 1}, {0, 0}})) EXPECT_TRUE(place.isMixed);
  for (const Place& place : agreed({{0, 0}, {132, 1}})) EXPECT_TRUE(place.isMixed);
  for (const Place& place : agreed({{0, 0}, {0, 0}})) EXPECT_FALSE(place.isMixed);
}

TEST(FormGroups, OfNobodyIsEmpty) { EXPECT_TRUE(formGroups({}).members.empty()); }

TEST(FormGroups, TakesTheLargestBoundOfStoresPastCaches) {
  std::vector<Arrival> arrivals(3);
  arrivals[0].pastCacheBytes = 16 << 20;
  arrivals[2].pastCacheBytes = 32 << 20;
  for (const Place& place : formGroups(arrivals).places) EXPECT_EQ(place.pastCacheBytes, uint64_t{32} << 20);
}

TEST(FormGroups, CountsTheCachesOfAMachine) {
  const auto cachesOf = [](const std::vector<Arrival>& arrivals) {
    const Grouping grouping = formGroups(arrivals);
    for (const Place& place : grouping.places) EXPECT_EQ(place.caches, grouping.places[0].caches);
    return grouping.places[0].caches;
  };
  const auto rank = [](uint64_t machine, int32_t cache, int32_t caches) {
    Arrival arrival;
    arrival.machine = machine;
    arrival.cache = cache;
    arrival.caches = caches;
    return arrival;
  };
  EXPECT_EQ(cachesOf({rank(7, -1, 0), rank(7, -1, 0)}), 0) << "nobody knows";
  EXPECT_EQ(cachesOf({rank(7, 0, 1), rank(7, 0, 1)}), 1);
  EXPECT_EQ(cachesOf({rank(7, 0, 1), rank(7, 8, 1), rank(7, 16, 1), rank(7, 8, 1)}), 3) << "bound to one each";
  EXPECT_EQ(cachesOf({rank(7, -1, 8), rank(7, -1, 8)}), 8) << "free to use all";
  EXPECT_EQ(cachesOf({rank(7, 0, 1), rank(7, 8, 1), rank(9, 0, 1), rank(9, 8, 1)}), 2) << "two machines of two";
}

TEST(FormGroups, TakesTheLargestCache) {
  std::vector<Arrival> arrivals(3);
  arrivals[1].cacheBytes = 32 << 20;
  arrivals[2].cacheBytes = 16 << 20;
  for (const Place& place : formGroups(arrivals).places) EXPECT_EQ(place.cacheBytes, uint64_t{32} << 20);
}

}  // namespace
}  // namespace tutti::comm::encounter_test
