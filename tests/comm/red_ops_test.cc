#include "comm/red_ops.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>

namespace tutti::comm::red_ops_test {
namespace {

uint32_t bitsOf(float value) { return std::bit_cast<uint32_t>(value); }

TEST(RedOps, ResolvesWhatIsBuiltIn) {
  const RedOps ops(7);
  for (int32_t op = 0; op < 4; ++op) {
    const auto resolved = ops.resolve(op, DataType::F32, 4);
    ASSERT_TRUE(resolved);
    EXPECT_EQ(resolved->op, static_cast<ReduceOp>(op));
    EXPECT_EQ(resolved->code, op);
    EXPECT_EQ(resolved->scaling, Scaling{});
    EXPECT_EQ(resolved->factorSource, nullptr);
  }
}

TEST(RedOps, AverageScalesFloatsByTheRoundedReciprocal) {
  const RedOps ops(7);
  const auto f32 = ops.resolve(4, DataType::F32, 3);
  ASSERT_TRUE(f32);
  EXPECT_EQ(f32->op, ReduceOp::Sum);
  EXPECT_EQ(f32->code, 4);
  EXPECT_TRUE(f32->scaling.hasFactor);
  EXPECT_EQ(f32->scaling.divisor, 1);
  EXPECT_EQ(f32->scaling.factor, bitsOf(1.0F / 3.0F));
  EXPECT_EQ(ops.resolve(4, DataType::F64, 3)->scaling.factor, std::bit_cast<uint64_t>(1.0 / 3.0));
  EXPECT_EQ(ops.resolve(4, DataType::F16, 4)->scaling.factor, 0x3400U) << "0.25 as half";
  EXPECT_EQ(ops.resolve(4, DataType::F16, 3)->scaling.factor, 0x3555U) << "1/3, rounded to half";
  EXPECT_EQ(ops.resolve(4, DataType::BF16, 3)->scaling.factor, 0x3eabU) << "1/3, rounded to bfloat16";
  EXPECT_EQ(ops.resolve(4, DataType::F8E4M3, 4)->scaling.factor, 0x28U) << "0.25 as f8e4m3";
  EXPECT_EQ(ops.resolve(4, DataType::F8E5M2, 4)->scaling.factor, 0x34U) << "0.25 as f8e5m2";
  EXPECT_FALSE(ops.resolve(4, DataType::F32, 1)->scaling.hasFactor) << "the average of one keeps every bit";
}

TEST(RedOps, AverageDividesIntegers) {
  const RedOps ops(7);
  for (const DataType type : {DataType::I8, DataType::U8, DataType::I32, DataType::U32, DataType::I64, DataType::U64}) {
    const auto resolved = ops.resolve(4, type, 6);
    ASSERT_TRUE(resolved);
    EXPECT_EQ(resolved->op, ReduceOp::Sum);
    EXPECT_FALSE(resolved->scaling.hasFactor);
    EXPECT_EQ(resolved->scaling.divisor, 6);
  }
}

TEST(RedOps, APreMultipliedSumCopiesItsScalarNow) {
  RedOps ops(7);
  float scalar = 2.5F;
  const int32_t op = ops.createPreMulSum(&scalar, DataType::F32, false);
  scalar = 9;
  const auto resolved = ops.resolve(op, DataType::F32, 4);
  ASSERT_TRUE(resolved);
  EXPECT_EQ(resolved->op, ReduceOp::Sum);
  EXPECT_EQ(resolved->code, 5);
  EXPECT_TRUE(resolved->scaling.hasFactor);
  EXPECT_EQ(resolved->scaling.factor, bitsOf(2.5F));
  EXPECT_EQ(resolved->factorSource, nullptr);
}

TEST(RedOps, OrReadsItWhenTheCallRuns) {
  RedOps ops(7);
  const double scalar = 2.5;
  const int32_t op = ops.createPreMulSum(&scalar, DataType::F64, true);
  EXPECT_EQ(ops.resolve(op, DataType::F64, 4)->factorSource, &scalar);
}

TEST(RedOps, ReadsNoMoreThanOneElement) {
  RedOps ops(7);
  const uint8_t bytes[2] = {0x38, 0xff};
  EXPECT_EQ(ops.resolve(ops.createPreMulSum(bytes, DataType::F8E4M3, false), DataType::F8E4M3, 2)->scaling.factor, 0x38U);
}

TEST(RedOps, HandlesLieOutsideTheBuiltInRangeAndAreNeverGivenTwice) {
  for (const uint32_t salt : {0U, 1U, 0x3fffffffU, 0xffffffffU, 0x12345678U}) {
    RedOps ops(salt);
    const float scalar = 1;
    std::set<int32_t> handles;
    for (int i = 0; i < 100; ++i) {
      const int32_t op = ops.createPreMulSum(&scalar, DataType::F32, false);
      EXPECT_GT(op, 5) << "an ncclRedOp_t, positive";
      EXPECT_TRUE(handles.insert(op).second);
      EXPECT_TRUE(ops.resolve(op, DataType::F32, 2));
      if (i % 2 == 0) {
        EXPECT_TRUE(ops.destroy(op).ok());
      }
    }
  }
}

void expectRefused(const Status& status, std::string_view word) {
  EXPECT_EQ(status.code(), Code::InvalidArgument);
  EXPECT_NE(status.text().find(word), std::string::npos) << status.text();
}

TEST(RedOps, RefusesWhatIsNotLive) {
  RedOps ops(7);
  RedOps others(99);
  const float scalar = 1;
  const int32_t op = ops.createPreMulSum(&scalar, DataType::F32, false);
  (void)others.createPreMulSum(&scalar, DataType::F32, false);
  for (const int32_t wrong : {-1, 5, 6, 1000, INT32_MAX, INT32_MIN, op + 1, op - 1}) {
    const auto resolved = ops.resolve(wrong, DataType::F32, 2);
    ASSERT_FALSE(resolved) << wrong;
    expectRefused(resolved.error(), std::to_string(wrong));
    expectRefused(ops.destroy(wrong), std::to_string(wrong));
  }
  ASSERT_FALSE(others.resolve(op, DataType::F32, 2)) << "of another communicator";
  for (int32_t builtIn = 0; builtIn < 5; ++builtIn) expectRefused(ops.destroy(builtIn), "built in");
  EXPECT_TRUE(ops.destroy(op).ok());
  expectRefused(ops.destroy(op), "destroyed");
  ASSERT_FALSE(ops.resolve(op, DataType::F32, 2));
}

TEST(RedOps, RefusesAnotherType) {
  RedOps ops(7);
  const float scalar = 1;
  const int32_t op = ops.createPreMulSum(&scalar, DataType::F32, false);
  const auto resolved = ops.resolve(op, DataType::F64, 2);
  ASSERT_FALSE(resolved);
  expectRefused(resolved.error(), "float");
  expectRefused(resolved.error(), "double");
}

}  // namespace
}  // namespace tutti::comm::red_ops_test
