#include "exec/prove/collective.h"

#include <gtest/gtest.h>

namespace tutti::exec::prove::collective_test {
namespace {

constexpr int32_t kRanks = 5;
constexpr int32_t kRoot = 2;

TEST(CollectiveShape, OnlyTheRootOfARootedCollectiveHasAllChunks) {
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    const bool isRoot = rank == kRoot;
    EXPECT_EQ(outputChunks(Collective::Gather, rank, kRoot, kRanks), isRoot ? kRanks : 0);
    EXPECT_EQ(outputChunks(Collective::Reduce, rank, kRoot, 3), isRoot ? 3 : 0);
    EXPECT_EQ(inputChunks(Collective::Scatter, rank, kRoot, kRanks), isRoot ? kRanks : 0);
    EXPECT_EQ(inputChunks(Collective::Broadcast, rank, kRoot, 3), isRoot ? 3 : 0);
    EXPECT_EQ(inputChunks(Collective::AllGather, rank, kRoot, kRanks), 1);
    EXPECT_EQ(outputChunks(Collective::ReduceScatter, rank, kRoot, kRanks), 1);
    EXPECT_EQ(outputChunks(Collective::AllToAll, rank, kRoot, kRanks), kRanks);
  }
}

TEST(CollectiveShape, EveryOutputHoldsWhatTheCollectiveDefines) {
  const std::vector<Expr> orders{10, 11, 12, 13, 14};
  const auto value = [&](Collective c, int32_t rank, int32_t chunk) { return expectedValue(c, rank, kRoot, chunk, orders); };
  EXPECT_EQ(value(Collective::AllReduce, 1, 3), (Value{13, 3, ValueKind::Final}));
  EXPECT_EQ(value(Collective::Reduce, kRoot, 0), (Value{10, 0, ValueKind::Final}));
  EXPECT_EQ(value(Collective::ReduceScatter, 4, 0), (Value{14, 4, ValueKind::Final}));
  EXPECT_EQ(value(Collective::AllGather, 1, 3), (Value{3, 0, ValueKind::Raw}));
  EXPECT_EQ(value(Collective::Broadcast, 1, 0), (Value{kRoot, 0, ValueKind::Raw}));
  EXPECT_EQ(value(Collective::AllToAll, 1, 3), (Value{3, 1, ValueKind::Raw}));
  EXPECT_EQ(value(Collective::Gather, kRoot, 3), (Value{3, 0, ValueKind::Raw}));
  EXPECT_EQ(value(Collective::Scatter, 1, 0), (Value{kRoot, 1, ValueKind::Raw}));
  EXPECT_EQ(value(Collective::SendRecv, 1, 0), (Value{kRoot, 0, ValueKind::Raw}));
}

TEST(CollectiveShape, InPlaceOverlapsOneBlockOrAllShares) {
  EXPECT_EQ(inPlaceChunk(Collective::AllReduce, 1, kRoot, 3), 3);
  EXPECT_EQ(inPlaceChunk(Collective::ReduceScatter, 4, kRoot, 0), 4);
  EXPECT_EQ(inPlaceChunk(Collective::AllGather, 4, kRoot, 4), 0);
  EXPECT_EQ(inPlaceChunk(Collective::AllGather, 4, kRoot, 3), -1);
  EXPECT_EQ(inPlaceChunk(Collective::Gather, kRoot, kRoot, kRoot), 0);
  EXPECT_EQ(inPlaceChunk(Collective::Gather, 1, kRoot, 1), -1);
  EXPECT_EQ(inPlaceChunk(Collective::Scatter, kRoot, kRoot, 0), kRoot);
  EXPECT_FALSE(hasInPlace(Collective::AllToAll) || hasInPlace(Collective::SendRecv));
}

}  // namespace
}  // namespace tutti::exec::prove::collective_test
