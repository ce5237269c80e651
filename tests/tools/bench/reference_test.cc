#include "bench/reference.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

namespace tutti::bench::reference_test {
namespace {

uint64_t reduceCodes(DataType type, RedOp op, std::vector<uint64_t> codes, std::vector<uint64_t> scalars = {}) {
  return reduceReference(type, op, codes, scalars).code;
}
uint64_t bits(float x) { return std::bit_cast<uint32_t>(x); }

TEST(Reference, IntegersWrap) {
  EXPECT_EQ(reduceCodes(DataType::U8, RedOp::Sum, {200, 100}), 44u);
  EXPECT_EQ(reduceCodes(DataType::I8, RedOp::Prod, {0x7f, 2}), 0xfeu);
  EXPECT_EQ(reduceCodes(DataType::U64, RedOp::Sum, {~uint64_t{0}, 2}), 1u);
  EXPECT_EQ(reduceCodes(DataType::I32, RedOp::MulSum, {3, 0xffffffff}, {5, 7}), 8u);
}

TEST(Reference, IntegerAverageDividesTheWrappedSumTruncating) {
  EXPECT_EQ(reduceCodes(DataType::I32, RedOp::Avg, {0xfffffff9, 0}), 0xfffffffdu);  // -7 / 2 = -3
  EXPECT_EQ(reduceCodes(DataType::U8, RedOp::Avg, {200, 100}), 22u);                // 44 / 2
  EXPECT_EQ(reduceCodes(DataType::I8, RedOp::Avg, {100, 100}), 0xe4u);              // -56 / 2
}

TEST(Reference, OrderHeedsTheSignOfTheType) {
  EXPECT_EQ(reduceCodes(DataType::I8, RedOp::Max, {0x80, 1}), 1u);
  EXPECT_EQ(reduceCodes(DataType::U8, RedOp::Max, {0x80, 1}), 0x80u);
  EXPECT_EQ(reduceCodes(DataType::I8, RedOp::Min, {0x80, 1}), 0x80u);
}

TEST(Reference, SignedZeros) {
  EXPECT_EQ(reduceCodes(DataType::F32, RedOp::Max, {bits(-0.0f), bits(0.0f)}), bits(0.0f));
  EXPECT_EQ(reduceCodes(DataType::F32, RedOp::Min, {bits(0.0f), bits(-0.0f)}), bits(-0.0f));
  EXPECT_EQ(reduceCodes(DataType::F32, RedOp::Sum, {bits(-0.0f), bits(-0.0f)}), bits(-0.0f));
  EXPECT_EQ(reduceCodes(DataType::F32, RedOp::Sum, {bits(-0.0f), bits(0.0f)}), bits(0.0f));
}

TEST(Reference, Floats) {
  EXPECT_EQ(reduceCodes(DataType::F32, RedOp::Sum, {bits(1.5f), bits(-4), bits(0.25f)}), bits(-2.25f));
  EXPECT_EQ(reduceCodes(DataType::F32, RedOp::Prod, {bits(1.5f), bits(-4)}), bits(-6));
  EXPECT_EQ(reduceCodes(DataType::F32, RedOp::MulSum, {bits(3), bits(1)}, {bits(0.5f), bits(-2)}), bits(-0.5f));
  EXPECT_EQ(reduceCodes(DataType::F32, RedOp::Avg, {bits(3), bits(1)}), bits(2));
  EXPECT_EQ(reduceCodes(DataType::F8E4M3, RedOp::Sum, {0x38, 0x38}), 0x40u);  // 1 + 1 = 2
}

TEST(Reference, OnlyInexactAveragesHaveATolerance) {
  const std::vector<uint64_t> three(3, bits(1));
  const std::vector<uint64_t> four(4, bits(1));
  EXPECT_GT(reduceReference(DataType::F32, RedOp::Avg, three, {}).tolerance, 0);
  EXPECT_LT(reduceReference(DataType::F32, RedOp::Avg, three, {}).tolerance, 1e-6);
  EXPECT_EQ(reduceReference(DataType::F32, RedOp::Avg, four, {}).tolerance, 0);
  EXPECT_EQ(reduceReference(DataType::F32, RedOp::Sum, three, {}).tolerance, 0);
}

}  // namespace
}  // namespace tutti::bench::reference_test
