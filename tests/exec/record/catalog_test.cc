#include "exec/record/catalog.h"

#include <gtest/gtest.h>

#include "algo/sendrecv.h"
#include "connect/layout.h"

namespace tutti::exec::record::catalog_test {
namespace {

TEST(Catalog, FindsByCollectiveAndName) {
  const Algorithm* ring = findAlgorithm(Collective::AllReduce, "ring");
  ASSERT_NE(ring, nullptr);
  EXPECT_EQ(ring->traits.collective, Collective::AllReduce);
  EXPECT_EQ(ring->chunks(7), 7);
  EXPECT_EQ(ring->lanes(7), 1);
  EXPECT_NE(findAlgorithm(Collective::Broadcast, "ring"), ring);
  EXPECT_EQ(findAlgorithm(Collective::Broadcast, "tree"), nullptr);
  EXPECT_EQ(findAlgorithm(Collective::AllReduce, ""), nullptr);
}

TEST(Catalog, EveryAlgorithmRecordsAsManyLanesAsItSays) {
  for (const Algorithm& a : algorithms()) {
    EXPECT_EQ(findAlgorithm(a.traits.collective, a.traits.name), &a);
    for (int32_t ranks = 1; ranks <= 9; ++ranks) {
      const connect::Layout layout = connect::Layout::natural(ranks);
      for (int32_t r = 0; r < ranks; ++r)
        EXPECT_EQ(a.record(layout.view(Rank(r))).lanes.size(), static_cast<size_t>(a.lanes(ranks))) << a.traits.name;
    }
  }
}

/// What its slots are shared by (transport/local/pipe.h, kInLead): all pipes of a sender carry the same messages.
TEST(Catalog, WhatFansOutSendsAllThatItSendsToAllOthersTheNextOneFirst) {
  int found = 0;
  for (const Algorithm& a : algorithms()) {
    if (!a.traits.fansOut) continue;
    ++found;
    EXPECT_EQ(a.traits.needs, algo::Needs::Pipe);
    for (int32_t ranks = 2; ranks <= a.traits.mostAtOnce; ++ranks) {
      const connect::Layout layout = connect::Layout::natural(ranks);
      for (int32_t r = 0; r < ranks; ++r)
        for (const auto& lane : a.record(layout.view(Rank(r), Rank(ranks / 2))).lanes)
          for (const algo::Step& step : lane) {
            ASSERT_FALSE(step.reduce);
            if (step.to.count == 0) continue;
            ASSERT_EQ(step.to.count, ranks - 1);
            for (int32_t i = 0; i < step.to.count; ++i) ASSERT_EQ(step.to.at(i), Rank((r + 1 + i) % ranks));
          }
    }
  }
  EXPECT_GT(found, 0);
}

TEST(Catalog, EveryAlgorithmUsesPortsThatThereAre) {
  for (const Algorithm& a : algorithms()) {
    for (const int32_t ranks : {2, 5, 8}) {
      const connect::Layout layout = connect::Layout::natural(ranks);
      for (int32_t r = 0; r < ranks; ++r) {
        for (const auto& lane : a.record(layout.view(Rank(r))).lanes)
          for (const algo::Step& step : lane)
            if (step.kind == algo::Kind::Pipe) {
              EXPECT_LT(step.port, algo::kPorts) << a.traits.name;
            }
      }
    }
  }
}

}  // namespace
}  // namespace tutti::exec::record::catalog_test
