#include "exec/record/cost.h"

#include <gtest/gtest.h>

#include "connect/layout.h"
#include "exec/record/catalog.h"

namespace tutti::exec::record::cost_test {
namespace {

using algo::Geometry;

/// Sum over all ranks and channels, root 0.
Traffic total(const char* name, Collective collective, int32_t ranks, uint64_t count, int32_t channels, bool passByReference) {
  const Algorithm* a = findAlgorithm(collective, name);
  const connect::Layout layout = connect::Layout::natural(ranks);
  const Geometry g = algo::makeGeometry(a->traits.division, count, a->chunks(ranks), DataType::F32, channels, 1024);
  Traffic sum;
  for (int32_t r = 0; r < ranks; ++r)
    for (int32_t channel = 0; channel < channels; ++channel)
      sum += countTraffic(a->record(layout.view(Rank(r))), g, 4, channel, ranks, passByReference);
  return sum;
}

TEST(Cost, RingAllReduceSendsTwiceTheBytesLessAShare) {
  for (const int32_t ranks : {2, 3, 4, 7}) {
    for (const int32_t channels : {1, 2}) {
      const uint64_t count = 10007;
      const Traffic t = total("ring", Collective::AllReduce, ranks, count, channels, true);
      EXPECT_EQ(t.bytesSent, 2 * static_cast<uint64_t>(ranks - 1) * count * 4);
    }
  }
}

TEST(Cost, ByReferenceSavesTheWritesOfWhatLiesInBuffers) {
  const uint64_t count = 4096;
  const uint64_t bytes = count * 4;
  const Traffic copied = total("ring", Collective::AllGather, 4, count, 1, false);
  const Traffic referred = total("ring", Collective::AllGather, 4, count, 1, true);
  EXPECT_EQ(copied.bytesSent, referred.bytesSent);
  EXPECT_EQ(referred.bytesWritten, 4 * 4 * bytes);                // every rank writes every block once
  EXPECT_EQ(copied.bytesWritten, 4 * 4 * bytes + 4 * 3 * bytes);  // and a slot for every message
  EXPECT_EQ(referred.bytesRead, 4 * 4 * bytes);
}

TEST(Cost, TreeAndRingMoveTheSameBytes) {
  const Traffic ring = total("ring", Collective::AllReduce, 8, 8192, 1, true);
  const Traffic tree = total("tree", Collective::AllReduce, 8, 8192, 1, true);
  EXPECT_EQ(ring.bytesSent, tree.bytesSent);
  EXPECT_LT(tree.messages, ring.messages * 8);
}

TEST(Cost, OneShotStoresToEveryRankAndReadsEveryCell) {
  const uint64_t count = 100;
  const Traffic t = total("oneshot", Collective::AllReduce, 5, count, 1, true);
  EXPECT_EQ(t.bytesWritten, (5 * 5 + 5) * count * 4);
  EXPECT_EQ(t.bytesRead, 2 * 5 * 5 * count * 4);
  EXPECT_EQ(t.messages, 25u);
}

TEST(Cost, NothingMovesForNoElements) {
  const Traffic t = total("ring", Collective::AllReduce, 4, 0, 1, true);
  EXPECT_EQ(t.bytesRead + t.bytesWritten + t.bytesSent + t.messages + t.steps, 0u);
}

}  // namespace
}  // namespace tutti::exec::record::cost_test
