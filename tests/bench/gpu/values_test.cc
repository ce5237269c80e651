#include "gpu/values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "bench/float_format.h"

namespace tutti::bench::gpu::values_test {
namespace {

CodeView viewOf(const Codes& codes) {
  return {codes.inputs.data(), codes.results.data(), static_cast<uint32_t>(codes.inputs.size()),
          sizeOf(codes.type),  codes.ranks,          codes.combine};
}

double valueOf(DataType type, uint64_t code) {
  if (!isInteger(type)) return decode(formatOf(type), code);
  const int unused = 64 - 8 * static_cast<int>(sizeOf(type));
  const bool isSigned = type == DataType::I8 || type == DataType::I32 || type == DataType::I64;
  return isSigned ? static_cast<double>(static_cast<int64_t>(code << unused) >> unused) : static_cast<double>(code);
}

double combine(RedOp op, double a, double b) {
  switch (op) {
    case RedOp::Prod: return a * b;
    case RedOp::Max: return std::max(a, b);
    case RedOp::Min: return std::min(a, b);
    default: return a + b;
  }
}

TEST(Values, ReductionsAreThoseOfTheInputsInEveryTypeAndOperator) {
  for (int ranks : {2, 3, 4, 8}) {
    for (int t = 0; t < kNumDataTypes; ++t) {
      const auto type = static_cast<DataType>(t);
      for (const RedOp op : {RedOp::Sum, RedOp::Prod, RedOp::Max, RedOp::Min, RedOp::Avg}) {
        if (op == RedOp::Avg && (ranks & (ranks - 1)) != 0) continue;
        if (op == RedOp::Prod && type == DataType::I8 && ranks == 8) continue;  // wraps, which doubles do not
        if (op == RedOp::Prod && type == DataType::U8 && ranks == 8) continue;
        const Codes codes = makeCodes(type, op, ranks);
        const CodeView view = viewOf(codes);
        Expectation expectation;
        expectation.isReduced = true;
        expectation.blockCount = 1 << 20;
        for (uint64_t i = 0; i < 300; ++i) {
          double expected = valueOf(type, inputCode(view, 7, 0, i));
          for (int rank = 1; rank < ranks; ++rank) expected = combine(op, expected, valueOf(type, inputCode(view, 7, rank, i)));
          if (op == RedOp::Avg) expected = isInteger(type) ? std::trunc(expected / ranks) : expected / ranks;
          ASSERT_EQ(valueOf(type, expectedCode(view, 7, expectation, i)), expected)
              << tutti::name(type) << " " << tutti::bench::name(op) << " of " << ranks << " ranks at " << i;
        }
      }
    }
  }
}

TEST(Values, ProductsOfBytesWrap) {
  const Codes codes = makeCodes(DataType::U8, RedOp::Prod, 8);
  EXPECT_EQ(codes.results.back(), 0u);  // 2 to the power of 8
  EXPECT_EQ(makeCodes(DataType::I8, RedOp::Prod, 8).results[7], 0x80u);
}

TEST(Values, EveryPartialSumIsExact) {
  for (int t = 0; t < kNumDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    if (isInteger(type)) continue;
    const Codes codes = makeCodes(type, RedOp::Sum, 8);
    for (size_t sum = 0; sum < codes.results.size(); ++sum)
      EXPECT_EQ(decode(formatOf(type), codes.results[sum]), double(sum)) << tutti::name(type);
    EXPECT_GT(codes.inputs.size(), 1u);
  }
}

// What the ranks send, moved by hand as nccl.h says, is what is expected of each.
class Moves : public testing::TestWithParam<int> {};

TEST_P(Moves, ComeFromWhereTheOperationSays) {
  const Operation& operation = operations()[static_cast<size_t>(GetParam())];
  constexpr int kRanks = 4, kRoot = 2;
  constexpr uint64_t kCount = 37, kSeed = 11;
  const std::optional<RedOp> op = operation.isReduction ? std::optional(RedOp::Sum) : std::nullopt;
  const Codes codes = makeCodes(DataType::I32, op, kRanks);
  const CodeView view = viewOf(codes);
  const auto input = [&](int rank, uint64_t index) { return inputCode(view, kSeed, rank, index); };
  const auto sum = [&](uint64_t index) {
    uint64_t total = 0;
    for (int rank = 0; rank < kRanks; ++rank) total += input(rank, index);
    return total;
  };
  for (int rank = 0; rank < kRanks; ++rank) {
    if (!operation.receives(rank, kRoot)) continue;
    const Expectation expectation = expectationOf(operation, kCount, rank, kRanks, kRoot);
    for (uint64_t i = 0; i < operation.receiveCount(kCount, kRanks); ++i) {
      const int block = static_cast<int>(i / kCount);
      const uint64_t own = kCount * static_cast<uint64_t>(rank);
      uint64_t expected = 0;
      switch (operation.op) {
        case Op::AllReduce:
        case Op::Reduce: expected = sum(i); break;
        case Op::ReduceScatter: expected = sum(own + i); break;
        case Op::AllGather:
        case Op::Gather: expected = input(block, i % kCount); break;
        case Op::Broadcast: expected = input(kRoot, i); break;
        case Op::Scatter: expected = input(kRoot, own + i); break;
        case Op::AllToAll: expected = input(block, own + i % kCount); break;
        case Op::SendRecv: expected = input((rank + kRanks - 1) % kRanks, i); break;
      }
      ASSERT_EQ(expectedCode(view, kSeed, expectation, i), expected) << "rank " << rank << ", element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Moves, testing::Range(0, kNumOps),
                         [](const auto& test) { return std::string(operations()[static_cast<size_t>(test.param)].name); });

TEST(Values, AnotherSeedRankOrIndexIsAnotherValue) {
  const Codes codes = makeCodes(DataType::F32, std::nullopt, 2);
  const CodeView view = viewOf(codes);
  int same = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    const uint64_t code = inputCode(view, 5, 0, i);
    same += (code == inputCode(view, 6, 0, i)) + (code == inputCode(view, 5, 1, i)) + (code == inputCode(view, 5, 0, i + 1));
  }
  EXPECT_LT(same, 30);  // 3 by chance
}

}  // namespace
}  // namespace tutti::bench::gpu::values_test
