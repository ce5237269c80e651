#include "exec/record/profile.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "connect/layout.h"

namespace tutti::exec::record::profile_test {
namespace {

Profile profileFor(Collective collective, std::string_view algorithm, int32_t ranks, int32_t nodeRanks = 0, Loans loans = Loans::None) {
  const connect::Layout layout = connect::Layout::natural(ranks, nodeRanks);
  std::vector<algo::LayoutView> views;
  for (int32_t r = 0; r < ranks; ++r) views.push_back(layout.view(Rank(r)));
  const Algorithm* found = findAlgorithm(collective, algorithm);
  EXPECT_NE(found, nullptr);
  return found == nullptr ? Profile() : profileOf(*found, views, loans);
}

TEST(Profile, HopsAreThoseOfTheLiterature) {
  for (const int32_t n : {2, 4, 8, 16, 64}) {
    const int32_t log = std::bit_width(static_cast<uint32_t>(n)) - 1;
    EXPECT_EQ(profileFor(Collective::AllReduce, "ring", n).hops, 2 * (n - 1)) << n;
    EXPECT_EQ(profileFor(Collective::ReduceScatter, "ring", n).hops, n - 1) << n;
    EXPECT_EQ(profileFor(Collective::AllReduce, "chain", n).hops, 2 * (n - 1)) << n;
    EXPECT_EQ(profileFor(Collective::AllReduce, "oneshot", n).hops, 1) << n;
    EXPECT_EQ(profileFor(Collective::AllReduce, "twoshot", n).hops, 2) << n;
    EXPECT_EQ(profileFor(Collective::AllToAll, "p2p", n).hops, 1) << n;
    EXPECT_LE(profileFor(Collective::AllReduce, "tree", n).hops, 2 * (log + 1)) << n;
  }
  EXPECT_EQ(profileFor(Collective::AllGather, "pat", 8).hops, 3);
  EXPECT_EQ(profileFor(Collective::ReduceScatter, "pat", 8).hops, 3);
}

TEST(Profile, AHierarchyHopsLessThanOneRingRoundAll) {
  const Profile ring = profileFor(Collective::AllReduce, "ring", 32);
  const Profile nodes = profileFor(Collective::AllReduce, "hierarchical", 32, 8);
  EXPECT_LT(nodes.farHops + nodes.hops, ring.hops);
}

TEST(Profile, WhatGoesFromNodeToNodeIsCountedApart) {
  const Profile ring = profileFor(Collective::AllReduce, "ring", 8, 4);
  EXPECT_EQ(ring.farHops, 4) << "the longest way crosses between two nodes twice a round";
  EXPECT_EQ(ring.farHops + ring.hops, 2 * 7);
  EXPECT_DOUBLE_EQ(ring.leaving, 2 * 7.0 / 8) << "one rank of a node sends to the other: as much as any rank sends";
  const Profile nodes = profileFor(Collective::AllReduce, "hierarchical", 8, 4);
  EXPECT_EQ(nodes.farHops, 2);
  EXPECT_DOUBLE_EQ(nodes.leaving, 1);
  EXPECT_EQ(profileFor(Collective::AllReduce, "ring", 8).farHops, 0);
  EXPECT_EQ(profileFor(Collective::AllReduce, "ring", 8).leaving, 0);
}

TEST(Profile, WhatReachesARootIsWhatAllOthersSend) {
  for (const int n : {2, 4, 8}) {
    EXPECT_DOUBLE_EQ(profileFor(Collective::Reduce, "direct", n).arriving, n - 1) << n;
    EXPECT_DOUBLE_EQ(profileFor(Collective::Reduce, "direct", n).crossing, 1) << n;
    EXPECT_DOUBLE_EQ(profileFor(Collective::Gather, "star", n).arriving, (n - 1.0) / n) << n;
    EXPECT_DOUBLE_EQ(profileFor(Collective::Scatter, "star", n).arriving, 1.0 / n) << n;
    EXPECT_DOUBLE_EQ(profileFor(Collective::AllReduce, "ring", n).arriving, profileFor(Collective::AllReduce, "ring", n).crossing) << n;
  }
}

TEST(Profile, TrafficCountsWhatMemorySees) {
  // Reads four inputs and writes the output; stored and loaded once more where nothing is lent.
  EXPECT_DOUBLE_EQ(profileFor(Collective::AllReduce, "twoshot", 4, 0, Loans::Read).traffic, 4 + 1 + 3 + 3);
  EXPECT_DOUBLE_EQ(profileFor(Collective::AllReduce, "twoshot", 4, 0, Loans::Placed).traffic, 4 + 4) << "nothing is loaded any more";
  EXPECT_GT(profileFor(Collective::AllReduce, "twoshot", 4).traffic, 4 + 1 + 3 + 3);
  EXPECT_DOUBLE_EQ(profileFor(Collective::AllGather, "direct", 4, 0, Loans::Read).traffic, 4 * 2);
  EXPECT_DOUBLE_EQ(profileFor(Collective::AllReduce, "ring", 4).traffic, 15);
  EXPECT_DOUBLE_EQ(profileFor(Collective::AllReduce, "ring", 4).busiest, 15.0 / 4);
  EXPECT_DOUBLE_EQ(profileFor(Collective::Gather, "star", 4).busiest, 2);
  EXPECT_DOUBLE_EQ(profileFor(Collective::AllReduce, "ring", 4).lane, 15.0 / 4) << "its only one";
  const Profile chain = profileFor(Collective::Reduce, "chain", 2);
  EXPECT_DOUBLE_EQ(chain.lane, chain.busiest) << "the other lane is for ranks on the other side";
  EXPECT_DOUBLE_EQ(profileFor(Collective::AllToAll, "p2p", 4).lane, 2.0 / 4) << "sends, receives or copies one chunk";
}

TEST(Profile, OneRankHopsNowhere) {
  for (const Algorithm& a : algorithms()) {
    if (a.traits.collective == Collective::SendRecv) continue;
    const Profile profile = profileFor(a.traits.collective, a.traits.name, 1);
    EXPECT_EQ(profile.hops, 0) << name(a.traits.collective) << " " << a.traits.name;
  }
}

}  // namespace
}  // namespace tutti::exec::record::profile_test
