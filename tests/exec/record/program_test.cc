#include "exec/record/program.h"

#include <gtest/gtest.h>

#include "algo/list.h"
#include "connect/layout.h"

namespace tutti::exec::record::program_test {
namespace {

using algo::Buffer;
using algo::Kind;

TEST(Program, RingAllReduceStepByStep) {
  const connect::Layout layout = connect::Layout::natural(3);
  const Program p = recordProgram<algo::RingAllReduce>(layout.view(Rank(1)));
  ASSERT_EQ(p.lanes.size(), 1u);
  ASSERT_EQ(p.steps(), 5u);
  const std::vector<Step>& s = p.lanes[0];
  const int32_t chunks[] = {0, 2, 1, 0, 2};  // one place further back at each step, once round and a bit
  for (size_t i = 0; i < s.size(); ++i) {
    const algo::ChunkRef& ref = s[i].dst.buffer == Buffer::None ? s[i].src : s[i].dst;
    EXPECT_EQ(ref.chunk, chunks[i]) << i;
    EXPECT_EQ(s[i].reduce, i <= 2) << i;
    EXPECT_EQ(s[i].from.count, i == 0 ? 0 : 1) << i;
    EXPECT_EQ(s[i].to.count, i == 4 ? 0 : 1) << i;
    EXPECT_TRUE(s[i].from.count == 0 || s[i].from.rank[0] == Rank(0)) << i;
    EXPECT_TRUE(s[i].to.count == 0 || s[i].to.rank[0] == Rank(2)) << i;
  }
}

TEST(Program, StepsOfEveryAlgorithmGrowAsTheirHeadersSay) {
  for (int32_t n = 2; n <= 40; ++n) {
    const connect::Layout layout = connect::Layout::natural(n);
    const algo::LayoutView v = layout.view(Rank(n / 2));
    const auto ranks = static_cast<size_t>(n);
    EXPECT_EQ(recordProgram<algo::RingAllReduce>(v).steps(), 2 * ranks - 1);
    EXPECT_EQ(recordProgram<algo::RingAllGather>(v).steps(), ranks);
    EXPECT_EQ(recordProgram<algo::RingReduceScatter>(v).steps(), ranks);
    EXPECT_EQ(recordProgram<algo::RingBroadcast>(v).steps(), 1u);
    EXPECT_EQ(recordProgram<algo::OneShotAllReduce>(v).steps(), 3 * (ranks - 1) + 2);
    EXPECT_EQ(recordProgram<algo::MessageAllToAll>(v).steps(), 2 * (ranks - 1) + 1);
    EXPECT_LE(recordProgram<algo::TreeAllReduce>(v).steps(), 6u);
  }
}

TEST(Program, TreeLanesUseOnePortATree) {
  const connect::Layout layout = connect::Layout::natural(6);
  for (int32_t r = 0; r < 6; ++r) {
    const Program p = recordProgram<algo::TreeAllReduce>(layout.view(Rank(r)));
    ASSERT_EQ(p.lanes.size(), 4u);
    for (size_t lane = 0; lane < 4; ++lane)
      for (const Step& step : p.lanes[lane])
        EXPECT_TRUE(step.kind != Kind::Pipe || step.port == lane / 2) << "rank " << r << " lane " << lane;
  }
}

TEST(Program, OneRankOnlyCopies) {
  const connect::Layout layout = connect::Layout::natural(1);
  algo::AllAlgorithms::forEach([&]<class A>() {
    const Program p = recordProgram<A>(layout.view(Rank(0)));
    for (const auto& lane : p.lanes)
      for (const Step& step : lane) {
        // To itself at most: into its own window, or from one of its lanes to another.
        for (int32_t i = 0; i < step.from.count; ++i) EXPECT_EQ(step.from.at(i), Rank(0)) << A::kTraits.name;
        for (int32_t i = 0; i < step.to.count; ++i) EXPECT_EQ(step.to.at(i), Rank(0)) << A::kTraits.name;
      }
  });
}

}  // namespace
}  // namespace tutti::exec::record::program_test
