#include "exec/prove/execute.h"

#include <gtest/gtest.h>

#include "algo/list.h"
#include "tampered.h"

namespace tutti::exec::prove::execute_test {
namespace {

using algo::in;
using algo::out;
using algo::Peers;
using record::Program;

// Every test plants one bug into a shipped algorithm and reads what the prover says of it.

/// Step 1 of the rank in the middle adds the chunk after the one that it should.
constexpr auto kWrongChunk = [](Program& p, const LayoutView& v) {
  if (v.rank == Rank(v.ranks / 2)) p.lanes[0][1].src.chunk += 1;
};
TEST(Execute, RejectsAnOffByOneInTheChunk) {
  const Subject s = tampered<algo::RingAllReduce, kWrongChunk>();
  expectRejected(proofOf(s, {.ranks = 8}),
                 {"AllReduce ring, 8 ranks, 2 slots, 2 slices: ", "rank 4 lane 0 slice 0 step 1 (recvReduceSend from 3 in[3] to 5)",
                  "combines chunk 3 with chunk 2, received from rank 3"});
  // With 4 ranks, counts exist for which the two chunks are not of one length.
  expectRejected(proofOf(s), {"rank 2 lane 0 slice 0 step 1", "whose size is not that of chunk 1"});
}

constexpr auto kWrongOutput = [](Program& p, const LayoutView& v) {
  if (v.rank == Rank(2)) p.lanes[0].back().dst.chunk = (p.lanes[0].back().dst.chunk + 1) % v.ranks;
};
TEST(Execute, RejectsAWrongPlaceInTheOutput) {
  const Subject s = tampered<algo::RingAllGather, kWrongOutput>();
  expectRejected(proofOf(s), {"AllGather ring, 4 ranks", "rank 2 lane 0 slice 0 step 3 (recvCopy from 1",
                              "in[0] of rank 3 instead of in[0] of rank 0"});
}

constexpr auto kMissingSend = [](Program& p, const LayoutView& v) {
  if (v.rank == Rank(2)) p.lanes[0][2].to.count = 0;
};
TEST(Execute, SaysWhoWaitsForAForgottenSend) {
  const Subject s = tampered<algo::RingBroadcast, [](Program& p, const LayoutView& v) {
    if (v.rank == Rank(2)) p.lanes[0][0].to.count = 0;
  }>();
  expectRejected(proofOf(s), {"deadlock, 1 of 4 lanes wait", "rank 3 lane 0 slice 0 step 0 (recvCopy from 2 out[0])",
                              "waits for a message that no lane ever gives"});
  const Subject ring = tampered<algo::RingAllGather, kMissingSend>();
  expectRejected(proofOf(ring, {.slices = 1}), {"deadlock", "rank 3 lane 0 slice 0 step 3", "waits for a message of rank 2 lane 0"});
  // With more slices, the next one's message is taken for the one that was not sent.
  expectRejected(proofOf(ring), {"rank 3 lane 0 slice 0 step 3", "receives slice 1 of operation 0, sent by rank 2 lane 0 slice 1 step 0"});
}

TEST(Execute, SaysWhichMessageNobodyReceives) {
  const Subject s = tampered<algo::RingBroadcast, [](Program& p, const LayoutView& v) {
    if (v.rank == Rank(3)) p.lanes[0][0].to = Peers(Rank(1));
  }>();
  expectRejected(proofOf(s), {"rank 3 lane 0 slice 0 step 0 (recvCopySend from 2 out[0] to 1)", "its message to rank 1 is never received"});
}

TEST(Execute, FindsTheCycleWhenSlotsAreTooFew) {
  const Proof proof = proofOf(subjectOf<algo::RingAllReduce>(), {.slots = 1});
  expectRejected(proof, {"AllReduce ring, 4 ranks, 1 slot", "deadlock, 4 of 4 lanes wait, 4 of them in a cycle",
                         "rank 0 lane 0 slice 0 step 1 (recvReduceSend from 3 in[2] to 1) waits for a free slot to 1",
                         "the pipe holds 1 message that rank 1 lane 0 has not received"});
}

constexpr auto kWholeChunks = [](Program& p, const LayoutView&) {
  // What a ring with steps outermost would do: all sends of a chunk before the first receive.
  Steps& lane = p.lanes[0];
  for (int i = 0; i < 2; ++i) lane.insert(lane.begin(), lane.front());
};
TEST(Execute, FindsTheCycleWhenMoreIsSentThanSlotsHold) {
  const Subject s = tampered<algo::RingAllReduce, kWholeChunks>();
  expectRejected(proofOf(s, {.slots = 2}), {"deadlock", "in a cycle", "waits for a free slot"});
}

TEST(Execute, RejectsReducingAFinishedSum) {
  const Subject s = tampered<algo::RingAllReduce, [](Program& p, const LayoutView& v) {
    if (v.rank != Rank(1)) return;
    algo::Step& step = p.lanes[0].back();
    step.reduce = true;
    step.src = in(step.dst.chunk);
  }>();
  expectRejected(proofOf(s), {"rank 1 lane 0 slice 0 step 6 (recvReduceCopy from 0", "reduces the finished sum"});
}

/// Rank 0's contribution goes to rank 1 and comes back to be added again.
struct ThereAndBack {
  static constexpr algo::Traits kTraits{"there-and-back", Collective::Reduce, algo::Needs::Pipe, algo::Division::Shares};
  static int32_t chunks(int32_t) { return 1; }
  static int32_t lanes(int32_t) { return 1; }
  template <class Lane>
  static void run(Lane& lane, const LayoutView& view, int32_t) {
    if (view.rank == Rank(1)) return lane.recvReduceSend(Rank(0), in(0), Rank(0));
    lane.contribute(in(0), Rank(1));
    lane.recvReduceCopy(Rank(1), in(0), out(0));
  }
  template <class Sum>
  static auto order(Sum& sum, int32_t, const LayoutView*) {
    return sum.add(sum.leaf(Rank(0)), sum.leaf(Rank(1)));
  }
};
TEST(Execute, CountsContributions) {
  expectRejected(proofOf(subjectOf<ThereAndBack>(), {.ranks = 2}),
                 {"Reduce there-and-back, 2 ranks", "rank 0 lane 0 slice 0 step 1", "rank 0's contribution appears 2 times"});
  const Subject missing = tampered<algo::RingAllReduce, [](Program& p, const LayoutView& v) {
    if (v.rank == Rank(2)) p.lanes[0][1].src = {};
  }>();
  expectRejected(proofOf(missing), {"rank 0 lane 0 slice 0 step 3 (recvReduceCopySend from 3", "rank 2's contribution is missing"});
}

TEST(Execute, RejectsAnotherOrderThanTheStatedOne) {
  const Subject s = tampered<algo::TreeAllReduce, [](Program& p, const LayoutView&) {
    for (Steps& lane : p.lanes)
      for (algo::Step& step : lane)
        if (step.from.count == 2) std::swap(step.from.rank[0], step.from.rank[1]);
  }>();
  expectRejected(proofOf(s, {.ranks = 8}),
                 {"AllReduce tree, 8 ranks", "reduced in the order r0+(r4+(r6+", "instead of the stated r0+(r4+(r2+"});
}

TEST(Execute, RejectsWhatMovesOrReducesTheWrongKindOfValue) {
  const Subject raw = tampered<algo::RingReduce, [](Program& p, const LayoutView& v) {
    if (v.rank == Rank(1)) p.lanes[0][0].reduce = false;
  }>();
  expectRejected(proofOf(raw), {"rank 2 lane 0 slice 0 step 0", "reduces in[0] of rank 1, which was moved and not contributed"});
  const Subject unfinished = tampered<algo::RingAllReduce, [](Program& p, const LayoutView& v) {
    if (v.rank != Rank(1)) return;
    algo::Step& step = p.lanes[0][1];
    step.reduce = false;
    step.dst = out(step.src.chunk);
    step.src = {};
  }>();
  expectRejected(proofOf(unfinished),
                 {"rank 1 lane 0 slice 0 step 1 (recvCopySend", "the unfinished sum r0 of chunk 3 instead of the finished sum"});
}

TEST(Execute, RejectsOutputsThatAreMissingOrStoredTwice) {
  const Subject missing = tampered<algo::RingAllGather, [](Program& p, const LayoutView& v) {
    if (v.rank == Rank(3)) p.lanes[0][0].dst = {};
  }>();
  expectRejected(proofOf(missing), {"AllGather ring, 4 ranks", "rank 3 lane 0 slice 0: no step stores out[3]"});
  const Subject twice = tampered<algo::RingAllGather, [](Program& p, const LayoutView& v) {
    if (v.rank != Rank(3)) return;
    algo::Step again;
    again.src = in(0);
    again.dst = out(3);
    p.lanes[0].push_back(again);
  }>();
  expectRejected(proofOf(twice),
                 {"rank 3 lane 0 slice 0 step 4 (copy in[0] out[3])", "stores to out[3] again, after rank 3 lane 0 slice 0 step 0"});
}

TEST(Execute, RejectsAReadOfInputThatTheOutputHasReplaced) {
  const Subject s = tampered<algo::RingAllReduce, [](Program& p, const LayoutView& v) {
    if (v.rank != Rank(0)) return;
    algo::Step late;
    late.reduce = true;
    late.src = in(0);
    late.to = Peers(Rank(1));
    p.lanes[0].push_back(late);
  }>();
  expectRejected(proofOf(s, {.inPlace = true}),
                 {"in place: rank 0 lane 0 slice 0 step 7", "reads in[0], over which rank 0 lane 0 slice 0 step"});
}

TEST(Execute, RejectsForgottenHandOvers) {
  const Subject noGive = tampered<algo::TreeAllReduce, [](Program& p, const LayoutView& v) {
    if (v.tree[0].isRoot()) p.lanes[0].pop_back();
  }>();
  expectRejected(proofOf(noGive), {"AllReduce tree, 4 ranks", "deadlock",
                                   "rank 0 lane 1 slice 0 step 0 (take lane 0) waits for the hand-over of rank 0 lane 0"});
  const Subject noTake = tampered<algo::TreeAllReduce, [](Program& p, const LayoutView& v) {
    if (v.tree[0].isRoot()) p.lanes[1].erase(p.lanes[1].begin());
  }>();
  expectRejected(proofOf(noTake), {"AllReduce tree, 4 ranks", "rank 0 lane 1 slice 0 step 0 (send out[0] to"});
}

TEST(Execute, RejectsForgottenArrivals) {
  const Subject noArrive = tampered<algo::OneShotAllReduce, [](Program& p, const LayoutView& v) {
    if (v.rank == Rank(1)) p.lanes[0].erase(p.lanes[0].begin() + 1);
  }>();
  expectRejected(proofOf(noArrive),
                 {"AllReduce oneshot, 4 ranks", "deadlock", "rank 2 lane 0 slice 0 step", "(await from 1) waits for the arrival"});
  const Subject noAwait = tampered<algo::OneShotAllReduce, [](Program& p, const LayoutView& v) {
    if (v.rank == Rank(1)) p.lanes[0].erase(p.lanes[0].end() - 2);
  }>();
  expectRejected(proofOf(noAwait), {"AllReduce oneshot, 4 ranks", "rank 1"});
}

}  // namespace
}  // namespace tutti::exec::prove::execute_test
