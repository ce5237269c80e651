#include "exec/prove/network.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "algo/list.h"
#include "tampered.h"

namespace tutti::exec::prove::network_test {
namespace {

using algo::in;
using algo::out;
using algo::Peers;

TEST(Network, NumbersLanesPipesAndPlaces) {
  const Subject s = subjectOf<algo::RingAllReduce>();
  Case c;
  c.algorithm = &s;
  c.ranks = 5;
  Network network;
  EXPECT_EQ(network.build(c), "");
  EXPECT_EQ(network.lanes(), 5);
  EXPECT_EQ(network.pipes().size(), 5u);
  EXPECT_EQ(network.places(), 2 * 5 * 5);
  EXPECT_EQ(network.program(0).stepsOf(2), 2u * 4u + 1u);
  for (const Pipe& pipe : network.pipes()) {
    EXPECT_EQ(pipe.to, (pipe.from + 1) % 5);
    EXPECT_EQ(pipe.writer, pipe.from);
    EXPECT_EQ(pipe.reader, pipe.to);
  }
  EXPECT_EQ(network.placeName(network.program(0).place(3, true, 2)), "rank 3's out[2]");
}

TEST(Network, InPlaceMakesBuffersOnePlace) {
  const Subject s = subjectOf<algo::RingReduceScatter>();
  Case c;
  c.algorithm = &s;
  c.ranks = 3;
  c.inPlace = true;
  Network network;
  ASSERT_EQ(network.build(c), "");
  const Program& program = network.program(0);
  const FlatStep& last = program.step(1, program.stepsOf(1) - 1);
  EXPECT_EQ(last.dst, program.place(1, false, 1));
  EXPECT_EQ(last.dst, last.src);
}

TEST(Network, RefusesBuffersAndPeersThatDoNotExist) {
  const Subject input = tampered<algo::RingBroadcast, [](record::Program& p, const LayoutView& v) {
    if (v.rank == Rank(2)) p.lanes[0][0].src = in(0), p.lanes[0][0].from.count = 0;
  }>();
  expectRejected(proofOf(input), {"Broadcast ring, 4 ranks, root 0", "rank 2 lane 0 step 0",
                                  "in[0] does not exist: Broadcast gives rank 2 0 chunks of input"});
  const Subject output = tampered<algo::RingReduce, [](record::Program& p, const LayoutView& v) {
    if (v.rank == Rank(3)) p.lanes[0][0].dst = out(0);
  }>();
  expectRejected(proofOf(output), {"rank 3 lane 0 step 0", "out[0] does not exist"});
  const Subject intoInput = tampered<algo::RingAllReduce, [](record::Program& p, const LayoutView& v) {
    if (v.rank == Rank(3)) p.lanes[0].back().dst.buffer = algo::Buffer::In;
  }>();
  expectRejected(proofOf(intoInput), {"rank 3 lane 0 step 6", "writes to the input"});
  const Subject peer = tampered<algo::RingReduce, [](record::Program& p, const LayoutView& v) {
    if (v.rank == Rank(3)) p.lanes[0][0].to = Peers(Rank(v.ranks));
  }>();
  expectRejected(proofOf(peer), {"rank 3 lane 0 step 0", "rank 4 does not exist"});
  const Subject self = tampered<algo::RingReduce, [](record::Program& p, const LayoutView& v) {
    if (v.rank == Rank(3)) p.lanes[0][0].to = Peers(Rank(3));
  }>();
  expectRejected(proofOf(self), {"rank 0 lane 0", "waits for a message that no lane ever gives"});
  const Subject arrival = tampered<algo::OneShotAllReduce, [](record::Program& p, const LayoutView& v) {
    if (v.rank == Rank(3)) p.lanes[0][1].to = Peers(Rank(3));
  }>();
  expectRejected(proofOf(arrival), {"rank 3 lane 0 step 1", "talks to itself"});
  const Subject round = tampered<algo::OneShotAllReduce, [](record::Program& p, const LayoutView& v) {
    if (v.rank == Rank(2)) p.lanes[0][0].round = 1;
  }>();
  expectRejected(proofOf(round), {"rank 2 lane 0 step 0", "round 1"});
  const Subject twice = tampered<algo::RingReduce, [](record::Program& p, const LayoutView& v) {
    if (v.rank == Rank(3)) p.lanes[0][0].to.add(Rank(0));
  }>();
  expectRejected(proofOf(twice), {"rank 3 lane 0 step 0", "names rank 0 twice"});
}

TEST(Network, APipeHasOneWriterAndOneReader) {
  // Both trees on one port: where they have a link in common, two lanes would share its pipe.
  const Subject s = tampered<algo::TreeAllReduce, [](record::Program& p, const LayoutView&) {
    for (Steps& lane : p.lanes)
      for (algo::Step& step : lane) step.port = 0;
  }>();
  expectRejected(proofOf(s, {.ranks = 2}), {"AllReduce tree, 2 ranks", "step 0", "pipe too"});
}

TEST(Network, AReductionMustStateItsOrder) {
  Subject s = subjectOf<algo::RingAllReduce>();
  s.order = nullptr;
  expectRejected(proofOf(s), {"states no order"});
}

TEST(Network, LayoutSeedsPermuteTheRanks) {
  const Subject s = subjectOf<algo::RingAllReduce>();
  Case c;
  c.algorithm = &s;
  c.ranks = 16;
  c.layoutSeed = 7;
  Network network;
  ASSERT_EQ(network.build(c), "");
  int32_t jumps = 0;
  for (const Pipe& pipe : network.pipes()) jumps += pipe.to == (pipe.from + 1) % 16 ? 0 : 1;
  EXPECT_GT(jumps, 8);
}

/// Channels of machines take tracks in turn, each with a ring of its own.
TEST(Network, TracksHaveRingsOfTheirOwn) {
  const Subject s = subjectOf<algo::RingAllReduce>();
  Network network;
  const auto linksOf = [&](int32_t track) {
    Case c;
    c.algorithm = &s;
    c.ranks = 8;
    c.layoutSeed = kChannelLayouts + 6;  // nodes of three
    c.track = track;
    EXPECT_EQ(network.build(c), "");
    EXPECT_EQ(network.pipes().size(), 8u);
    std::set<std::pair<int32_t, int32_t>> links;
    for (const Pipe& pipe : network.pipes()) links.insert({pipe.from, pipe.to});
    return links;
  };
  EXPECT_NE(linksOf(0), linksOf(1));
  EXPECT_NE(linksOf(1), linksOf(2));
  EXPECT_EQ(linksOf(1), linksOf(1 + kTracks)) << "in turn";
  Case c;
  c.algorithm = &s;
  c.track = -1;
  expectRejected(prove(c), {"track -1; at least 0"});
}

}  // namespace
}  // namespace tutti::exec::prove::network_test
