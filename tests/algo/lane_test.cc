#include "algo/lane.h"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::algo::lane_test {
namespace {

struct PipesOnly : LocalVerbs<PipesOnly>, PipeVerbs<PipesOnly> {
  std::vector<Step> steps;
  void run(const Step& step) { steps.push_back(step); }
};
struct Everything : LocalVerbs<Everything>, PipeVerbs<Everything>, HandOverVerbs<Everything>, PeerMemoryVerbs<Everything> {
  std::vector<Step> steps;
  void run(const Step& step) { steps.push_back(step); }
};
static_assert(Pipe<PipesOnly> && !HandOver<PipesOnly> && !PeerMemory<PipesOnly>);
static_assert(Pipe<Everything> && HandOver<Everything> && PeerMemory<Everything>);

TEST(Lane, VerbsFillWhatTheyNameAndNothingElse) {
  PipesOnly lane;
  lane.usePort(5);
  lane.recvReduceCopySend(Rank(1), in(2), out(3), Rank(4));
  lane.send(out(7), Rank(6));
  const Step& all = lane.steps[0];
  EXPECT_EQ(all.kind, Kind::Pipe);
  EXPECT_TRUE(all.reduce);
  EXPECT_EQ(all.port, 5);
  EXPECT_EQ(all.from.count, 1);
  EXPECT_EQ(all.from.rank[0], Rank(1));
  EXPECT_EQ(all.src.buffer, Buffer::In);
  EXPECT_EQ(all.src.chunk, 2);
  EXPECT_EQ(all.dst.buffer, Buffer::Out);
  EXPECT_EQ(all.dst.chunk, 3);
  EXPECT_EQ(all.to.rank[0], Rank(4));
  const Step& send = lane.steps[1];
  EXPECT_FALSE(send.reduce);
  EXPECT_EQ(send.from.count, 0);
  EXPECT_EQ(send.dst.buffer, Buffer::None);
  EXPECT_EQ(send.src.buffer, Buffer::Out);
}

TEST(Lane, OnlyVerbsThatReduceReduce) {
  PipesOnly lane;
  const ChunkRef c = in(0);
  const Peers p = Rank(1);
  lane.send(c, p), lane.copySend(c, c, p), lane.copy(c, c), lane.recvCopy(p, c), lane.recvCopySend(p, c, p);
  const size_t moves = lane.steps.size();
  lane.contribute(c, p), lane.reduceCopy(c, c), lane.recvReduceSend(p, c, p), lane.recvReduceCopy(p, c, c),
      lane.recvReduceCopySend(p, c, c, p);
  for (size_t i = 0; i < lane.steps.size(); ++i) EXPECT_EQ(lane.steps[i].reduce, i >= moves) << i;
}

TEST(Lane, HandOverAndPeerMemoryNameTheOtherSide) {
  Everything lane;
  lane.give(3);
  lane.take(2);
  lane.store(in(1), Rank(4));
  lane.arrive(Rank(5));
  lane.await(Rank(6));
  lane.loadReduce(out(0));
  EXPECT_EQ(lane.steps[0].kind, Kind::Give);
  EXPECT_EQ(lane.steps[0].lane, 3);
  EXPECT_EQ(lane.steps[1].kind, Kind::Take);
  EXPECT_EQ(lane.steps[1].lane, 2);
  EXPECT_EQ(lane.steps[2].kind, Kind::Store);
  EXPECT_EQ(lane.steps[2].to.rank[0], Rank(4));
  EXPECT_EQ(lane.steps[3].kind, Kind::Arrive);
  EXPECT_EQ(lane.steps[3].to.rank[0], Rank(5));
  EXPECT_EQ(lane.steps[4].kind, Kind::Await);
  EXPECT_EQ(lane.steps[4].from.rank[0], Rank(6));
  EXPECT_EQ(lane.steps[5].kind, Kind::LoadReduce);
  EXPECT_EQ(lane.steps[5].dst.buffer, Buffer::Out);
}

}  // namespace
}  // namespace tutti::algo::lane_test
