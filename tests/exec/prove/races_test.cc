#include "exec/prove/races.h"

#include <gtest/gtest.h>

#include "algo/list.h"
#include "tampered.h"

namespace tutti::exec::prove::races_test {
namespace {

using algo::in;
using algo::out;
using record::Program;

TEST(Races, FollowsOnlyPlacesThatLanesShare) {
  const Subject ring = subjectOf<algo::RingAllReduce>();
  const Proof apart = proofOf(ring);
  EXPECT_TRUE(apart.ok) << apart.failure;
  EXPECT_EQ(apart.races, RaceCheck::NothingShared);

  // In place, a chunk is read by the next rank as a contribution and written by its own rank as a result.
  const Proof inPlace = proofOf(ring, {.inPlace = true});
  EXPECT_TRUE(inPlace.ok) << inPlace.failure;
  EXPECT_EQ(inPlace.races, RaceCheck::Ordered);
  EXPECT_EQ(inPlace.sharedPlaces, 4u * 2u);  // ranks × slices: the first chunk that a rank sends
}

TEST(Races, TwoBanksAreEnoughAndOneIsNot) {
  const Subject s = subjectOf<algo::OneShotAllReduce>();
  for (const int32_t slices : {1, 2, 3, 5}) {
    const Proof two = proofOf(s, {.slices = slices, .operations = 4});
    EXPECT_TRUE(two.ok) << two.failure;
    EXPECT_EQ(two.races, RaceCheck::Ordered);
  }
  expectRejected(proofOf(s, {.slices = 2, .banks = 1}),
                 {"AllReduce oneshot, 4 ranks", "1 bank: rank", "lane 0 slice 1 step", "cell in the window of rank"});
  // Also when the reuse comes from the next call.
  expectRejected(proofOf(s, {.slices = 1, .operations = 2, .banks = 1}), {"lane 0 operation 1 slice 0 step", "cell in the window of rank"});
}

constexpr auto kAwaitLess = [](Program& p, const LayoutView& v) {
  if (v.rank != Rank(1)) return;
  Steps& lane = p.lanes[0];
  std::erase_if(lane, [](const algo::Step& s) { return s.kind == algo::Kind::Await && s.from.rank[0] == Rank(0); });
};
constexpr auto kNeitherArriveNorAwait = [](Program& p, const LayoutView& v) {
  kAwaitLess(p, v);
  if (v.rank == Rank(0))
    std::erase_if(p.lanes[0], [](const algo::Step& s) { return s.kind == algo::Kind::Arrive && s.to.rank[0] == Rank(1); });
};
TEST(Races, AMissingAwaitIsFoundWhateverTheSchedule) {
  // Rank 0 runs first in the prover's schedule, so its cell is there by luck.
  const Subject s = tampered<algo::OneShotAllReduce, kAwaitLess>();
  expectRejected(proofOf(s, {.slices = 1}), {"AllReduce oneshot, 4 ranks", "is never taken"});
  const Subject unasked = tampered<algo::OneShotAllReduce, kNeitherArriveNorAwait>();
  expectRejected(proofOf(unasked, {.slices = 1}),
                 {"AllReduce oneshot, 4 ranks", "rank 1 lane 0 slice 0 step",
                  "(loadReduce out[0]): reads rank 0's cell in the window of rank 1, bank 0, "
                  "and nothing orders that after rank 0 lane 0 slice 0 step 0 (store in[0] to 1), which writes it"});
}

TEST(Races, AnAwaitAfterTheReadIsTooLate) {
  const Subject s = tampered<algo::OneShotAllReduce, [](Program& p, const LayoutView& v) {
    if (v.rank == Rank(2)) std::swap(p.lanes[0].end()[-1], p.lanes[0].end()[-2]);
  }>();
  expectRejected(proofOf(s), {"rank 2 lane 0", "(loadReduce out[0])"});
}

/// Both halves of an exchange, in lanes of their own, and a copy of the own part at the end.
struct CopyAfterSend {
  static constexpr algo::Traits kTraits{"copy-after-send", Collective::AllGather, algo::Needs::Pipe, algo::Division::Blocks};
  static int32_t chunks(int32_t ranks) { return ranks; }
  static int32_t lanes(int32_t) { return 2; }
  template <class Lane>
  static void run(Lane& lane, const LayoutView& view, int32_t laneIndex) {
    const Rank peer(1 - view.rank.value);
    if (laneIndex == 1) return lane.recvCopy(peer, out(peer.value));
    lane.send(in(0), peer);
    lane.copy(in(0), out(view.rank.value));
  }
};
TEST(Races, ACopyOfAPlaceOntoItselfChangesNothing) {
  const Subject s = subjectOf<CopyAfterSend>();
  for (const bool inPlace : {false, true}) {
    const Proof proof = proofOf(s, {.ranks = 2, .inPlace = inPlace});
    EXPECT_TRUE(proof.ok) << proof.failure;
  }
  // What the copy leaves is the output all the same: a second one is a store too many.
  const Subject twice = tampered<CopyAfterSend, [](Program& p, const LayoutView&) { p.lanes[0].push_back(p.lanes[0].back()); }>();
  for (const bool inPlace : {false, true})
    expectRejected(proofOf(twice, {.ranks = 2, .inPlace = inPlace}), {"AllGather copy-after-send, 2 ranks", "step 2 (copy in[0]"});
}

/// Rank 1 adds twice, for rank 0 and for itself; the sum for rank 0 lands where rank 1 may still be reading.
struct SumOverWhatWasSent {
  static constexpr algo::Traits kTraits{"sum-over-sent", Collective::AllReduce, algo::Needs::Pipe, algo::Division::Shares};
  static int32_t chunks(int32_t) { return 1; }
  static int32_t lanes(int32_t) { return 2; }
  template <class Lane>
  static void run(Lane& lane, const LayoutView& view, int32_t laneIndex) {
    const Rank peer(1 - view.rank.value);
    lane.usePort(static_cast<uint8_t>(laneIndex));
    if (view.rank == Rank(0)) {
      lane.contribute(in(0), peer);
      if (laneIndex == 0) lane.recvCombineCopy(peer, out(0));
    } else if (laneIndex == 0) {
      lane.recvReduceSend(peer, in(0), peer);
    } else {
      lane.recvReduceCopy(peer, in(0), out(0));
    }
  }
  template <class Sum>
  static auto order(Sum& sum, int32_t, const LayoutView*) {
    return sum.add(sum.leaf(Rank(1)), sum.leaf(Rank(0)));
  }
};
TEST(Races, MemorySentByReferenceMustStay) {
  const Subject s = subjectOf<SumOverWhatWasSent>();
  const Proof apart = proofOf(s, {.ranks = 2});
  EXPECT_TRUE(apart.ok) << apart.failure;
  expectRejected(
      proofOf(s, {.ranks = 2, .inPlace = true}),
      {"AllReduce sum-over-sent, 2 ranks", "in place", "reads rank 0's in[0] slice 0 by reference, which rank", "has overwritten since"});
}

TEST(Races, AMissingHandOverIsARaceEvenIfTheScheduleHidesIt) {
  // The up lane tells nobody, the down lane asks nobody, and the prover happens to run the up lane first for one rank.
  const Subject s = tampered<algo::TreeAllReduce, [](Program& p, const LayoutView&) {
    for (Steps& lane : p.lanes)
      std::erase_if(lane, [](const algo::Step& step) { return step.kind == algo::Kind::Give || step.kind == algo::Kind::Take; });
  }>();
  for (const int32_t ranks : {2, 3, 4, 8}) expectRejected(proofOf(s, {.ranks = ranks}), {"AllReduce tree", "lane", "step 0 (send out["});
}

/// Two lanes of one rank touch one place, in an order that only the schedule gives.
struct UnorderedLanes {
  static constexpr algo::Traits kTraits{"unordered", Collective::Broadcast, algo::Needs::Pipe, algo::Division::Shares};
  static int32_t chunks(int32_t) { return 1; }
  static int32_t lanes(int32_t) { return 2; }
  template <class Lane>
  static void run(Lane& lane, const LayoutView& view, int32_t laneIndex) {
    if (view.rank == Rank(1)) {
      if (laneIndex == 1) lane.recvCopy(Rank(0), out(0));
    } else if (laneIndex == 0) {
      lane.copy(in(0), out(0));
    } else {
      lane.send(out(0), Rank(1));
    }
  }
};
TEST(Races, NamesBothStepsOfARace) {
  expectRejected(proofOf(subjectOf<UnorderedLanes>(), {.ranks = 2}),
                 {"Broadcast unordered, 2 ranks",
                  "rank 0 lane 1 slice 0 step 0 (send out[0] to 1): reads rank 0's out[0] slice 0, and nothing orders that "
                  "after rank 0 lane 0 slice 0 step 0 (copy in[0] out[0]), which writes it"});
}

TEST(Races, ManyLanesTakeSeveralReplays) {
  const Proof proof = proofOf(subjectOf<algo::RingAllReduce>(), {.ranks = 300, .slices = 1, .inPlace = true});
  EXPECT_TRUE(proof.ok) << proof.failure;
  EXPECT_EQ(proof.sharedPlaces, 300u);
  const Proof messages = proofOf(subjectOf<algo::MessageAllToAll>(), {.ranks = 20, .slices = 2, .operations = 2});
  EXPECT_TRUE(messages.ok) << messages.failure;
  EXPECT_EQ(messages.races, RaceCheck::Ordered);
}

}  // namespace
}  // namespace tutti::exec::prove::races_test
