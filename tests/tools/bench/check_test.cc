// The checker must see what it is there to see: each test corrupts one thing and expects it to be counted.
#include "bench/check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace tutti::bench::check_test {
namespace {

constexpr int kRanks = 3;

/// A communicator without a library: buffers of all ranks, and a correct collective done by copying from the tables.
class Fixture {
 public:
  Fixture(Op op, DataType type, std::optional<RedOp> redOp, uint64_t count, bool isInPlace = false, int root = 1)
      : pattern_(type, redOp, kRanks, 0), round_{&pattern_, 5} {
    for (const Operation& operation : operations()) {
      if (operation.op == op) call.operation = &operation;
    }
    call.type = type;
    call.redOp = redOp;
    call.root = call.operation->isRooted ? root : -1;
    call.count = count;
    call.ranks = kRanks;
    call.isInPlace = isInPlace;
    for (int rank = 0; rank < kRanks; ++rank) {
      memories_[rank].send = *Buffer::map(call.sendCount() * 8);
      memories_[rank].receive = *Buffer::map(call.receiveCount() * 8);
      placements[rank] = place(call, rank, memories_[rank]);
      prepare(call, rank, placements[rank], memories_[rank], round_);
    }
    for (int rank = 0; rank < kRanks; ++rank) finish(rank);
  }

  Verdict judgeRank(int rank) { return judge(call, rank, placements[rank], memories_[rank], round_); }

  uint64_t wrong() {
    uint64_t sum = 0;
    for (int rank = 0; rank < kRanks; ++rank) sum += judgeRank(rank).wrong;
    return sum;
  }

  uint64_t size() const { return sizeOf(call.type); }

  Call call;
  Placement placements[kRanks];

 private:
  /// What the collective leaves on `rank`, worked out here block by block, not through the checker's own table of origins.
  void finish(int rank) {
    if (!call.operation->receives(rank, call.root)) return;
    const auto write = [&](const Table& table, uint64_t place, uint64_t first) {
      table.fill(placements[rank].receive + place * size(), call.count, first + round_.phase);
    };
    const uint64_t mine = static_cast<uint64_t>(rank) * call.count;
    switch (call.operation->op) {
      case Op::AllReduce:
      case Op::Reduce: write(pattern_.reduced(), 0, 0); break;
      case Op::ReduceScatter: write(pattern_.reduced(), 0, mine); break;
      case Op::Broadcast: write(pattern_.input(call.root), 0, 0); break;
      case Op::Scatter: write(pattern_.input(call.root), 0, mine); break;
      case Op::SendRecv: write(pattern_.input((rank + 2) % 3), 0, 0); break;
      case Op::AllGather:
      case Op::Gather:
        for (int r = 0; r < kRanks; ++r) write(pattern_.input(r), static_cast<uint64_t>(r) * call.count, 0);
        break;
      case Op::AllToAll:
        for (int r = 0; r < kRanks; ++r) write(pattern_.input(r), static_cast<uint64_t>(r) * call.count, mine);
        break;
    }
  }

  Pattern pattern_;
  Round round_;
  Memory memories_[kRanks];
};

std::optional<RedOp> redOpOf(const Operation& operation) { return operation.isReduction ? std::optional(RedOp::Sum) : std::nullopt; }

TEST(Check, AcceptsEveryRightResult) {
  for (const Operation& operation : operations()) {
    for (const bool isInPlace : {false, true}) {
      if (isInPlace && !operation.hasInPlace) continue;
      for (const uint64_t count : {0, 1, 7, 10000}) {
        Fixture fixture(operation.op, DataType::F32, redOpOf(operation), count, isInPlace);
        EXPECT_EQ(fixture.wrong(), 0u) << describe(fixture.call) << ": " << fixture.judgeRank(0).first;
      }
    }
  }
}

TEST(Check, SeesOneFlippedBitInEveryTypeAndReduction) {
  for (int t = 0; t < kNumDataTypes; ++t) {
    for (int o = 0; o < kNumRedOps; ++o) {
      // An average over three ranks of floats has a tolerance: the sign is beyond it wherever the value is not nearly zero.
      const auto op = static_cast<RedOp>(o);
      if (op == RedOp::Avg && !isInteger(static_cast<DataType>(t))) continue;
      Fixture fixture(Op::AllReduce, static_cast<DataType>(t), op, 9000);
      ASSERT_EQ(fixture.wrong(), 0u);
      fixture.placements[2].receive[8999 * fixture.size()] ^= std::byte{1};
      EXPECT_EQ(fixture.wrong(), 1u) << describe(fixture.call);
      EXPECT_NE(fixture.judgeRank(2).first.find("rank 2, element 8999 is 0x"), std::string::npos) << fixture.judgeRank(2).first;
    }
  }
}

TEST(Check, SeesOneWrongElementInEveryOperation) {
  for (const Operation& operation : operations()) {
    for (const bool isInPlace : {false, true}) {
      if (isInPlace && !operation.hasInPlace) continue;
      Fixture fixture(operation.op, DataType::U8, redOpOf(operation), 100, isInPlace);
      const uint64_t last = fixture.call.receiveCount() - 1;
      fixture.placements[1].receive[last] ^= std::byte{0x40};
      EXPECT_EQ(fixture.wrong(), 1u) << describe(fixture.call);
    }
  }
}

TEST(Check, AverageOfThreeRanksIsJudgedWithinItsTolerance) {
  Fixture fixture(Op::AllReduce, DataType::F32, RedOp::Avg, 9000);
  float value;
  std::memcpy(&value, fixture.placements[0].receive + 4 * 4, 4);
  const float near = std::nextafter(value, 1e30f);
  std::memcpy(fixture.placements[0].receive + 4 * 4, &near, 4);
  EXPECT_EQ(fixture.wrong(), 0u);
  const float far = value + std::fabs(value) * 1e-3f + 1;
  std::memcpy(fixture.placements[0].receive + 4 * 4, &far, 4);
  EXPECT_EQ(fixture.wrong(), 1u);
  const float nan = NAN;
  std::memcpy(fixture.placements[0].receive + 4 * 4, &nan, 4);
  EXPECT_EQ(fixture.wrong(), 1u);
}

TEST(Check, RanksThatDifferWithinTheToleranceAreSeen) {
  Fixture fixture(Op::AllReduce, DataType::F32, RedOp::Avg, 100);
  EXPECT_EQ(compareRanks(fixture.call, fixture.placements[1], fixture.placements[0], 0).wrong, 0u);
  fixture.placements[1].receive[40] ^= std::byte{1};
  EXPECT_EQ(fixture.wrong(), 0u);
  EXPECT_EQ(compareRanks(fixture.call, fixture.placements[1], fixture.placements[0], 0).wrong, 1u);
}

TEST(Check, SeesUntouchedOutput) {
  Fixture fixture(Op::AllGather, DataType::F64, std::nullopt, 50);
  std::memset(fixture.placements[0].receive + 50 * 8, 0xc3, 50 * 8);
  EXPECT_EQ(fixture.wrong(), 50u);
}

TEST(Check, SeesBlocksInTheWrongOrder) {
  Fixture fixture(Op::AllToAll, DataType::I32, std::nullopt, 64);
  std::vector<std::byte> block(64 * 4);
  std::byte* data = fixture.placements[2].receive;
  std::memcpy(block.data(), data, block.size());
  std::memmove(data, data + block.size(), block.size());
  std::memcpy(data + block.size(), block.data(), block.size());
  EXPECT_EQ(fixture.wrong(), 128u);
}

TEST(Check, SeesResultsShiftedByOne) {
  Fixture fixture(Op::AllReduce, DataType::I64, RedOp::Sum, 20000);
  std::byte* data = fixture.placements[0].receive;
  std::memmove(data, data + 8, 19999 * 8);
  EXPECT_EQ(fixture.wrong(), 20000u - 1);
}

TEST(Check, SeesBytesBesideTheBuffers) {
  for (const int64_t offset : {int64_t{-1}, int64_t{100}}) {
    Fixture fixture(Op::AllReduce, DataType::U8, RedOp::Sum, 100);
    fixture.placements[1].receive[offset] = std::byte{0};
    EXPECT_EQ(fixture.wrong(), 1u);
    EXPECT_NE(fixture.judgeRank(1).first.find("beside"), std::string::npos);
  }
}

TEST(Check, SeesAChangedSendBuffer) {
  Fixture fixture(Op::ReduceScatter, DataType::F16, RedOp::Max, 30);
  fixture.placements[0].send[2 * 89] ^= std::byte{1};
  EXPECT_EQ(fixture.wrong(), 1u);
  EXPECT_NE(fixture.judgeRank(0).first.find("send buffer was changed at element 89"), std::string::npos);
}

TEST(Check, SeesAReceiveBufferThatOnlyTheRootMayWrite) {
  for (const Op op : {Op::Reduce, Op::Gather}) {
    Fixture fixture(op, DataType::F32, op == Op::Reduce ? std::optional(RedOp::Sum) : std::nullopt, 10);
    fixture.placements[2].receive[3] = std::byte{0};
    EXPECT_EQ(fixture.wrong(), 1u);
  }
}

}  // namespace
}  // namespace tutti::bench::check_test
