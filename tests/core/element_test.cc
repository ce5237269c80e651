// The scalar numerics contract against an independent definition: values of codes by ldexp, rounding by exact comparison with
// the midpoints of neighbouring codes in double precision.
#include "core/element.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace tutti::element_test {
namespace {

using element::bitsOf;
using element::doubleOf;
using element::floatOf;

/// The value that a code stands for, from its fields. Codes for infinity are not asked for.
double valueOf(uint32_t code, int exponentBits, int mantissaBits) {
  const int bias = (1 << (exponentBits - 1)) - 1;
  const int exponent = static_cast<int>(code >> mantissaBits) & ((1 << exponentBits) - 1);
  const int mantissa = static_cast<int>(code & ((1u << mantissaBits) - 1));
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissaBits)
                                         : std::ldexp(mantissa + (1 << mantissaBits), exponent - bias - mantissaBits);
  return code >> (exponentBits + mantissaBits) ? -magnitude : magnitude;
}

template <DataType type>
uint32_t codeOf(float value) {
  return narrow<type>(value).bits;
}

/// Walks all neighbouring codes up to `maxCode`: each is exact both ways, and between two the rounding changes at the
/// midpoint, which goes to the even code.
template <DataType type>
void checkFormat(int exponentBits, int mantissaBits, uint32_t maxCode) {
  using Element = ElementOf<type>;
  const uint32_t signBit = 1u << (exponentBits + mantissaBits);
  for (uint32_t code = 0; code <= maxCode; ++code) {
    for (const uint32_t sign : {0u, signBit}) {
      Element x;
      x.bits = static_cast<decltype(x.bits)>(code | sign);
      const double value = valueOf(code | sign, exponentBits, mantissaBits);
      ASSERT_EQ(static_cast<double>(toFloat(x)), value) << code;
      ASSERT_EQ(std::signbit(toFloat(x)), sign != 0);
      ASSERT_EQ(codeOf<type>(toFloat(x)), code | sign);
      if (code == maxCode) continue;
      const double middle = (value + valueOf((code + 1) | sign, exponentBits, mantissaBits)) / 2;
      const auto exact = static_cast<float>(middle);
      ASSERT_EQ(static_cast<double>(exact), middle);
      ASSERT_EQ(codeOf<type>(exact), (code % 2 == 0 ? code : code + 1) | sign) << code;
      ASSERT_EQ(codeOf<type>(std::nextafter(exact, toFloat(x))), code | sign) << code;
      ASSERT_EQ(codeOf<type>(std::nextafter(exact, sign ? -INFINITY : INFINITY)), (code + 1) | sign) << code;
    }
  }
}

TEST(ElementTest, RoundsToNearestEvenInEveryFormat) {
  checkFormat<DataType::F16>(5, 10, 0x7bff);
  checkFormat<DataType::BF16>(8, 7, 0x7f7f);
  checkFormat<DataType::F8E4M3>(4, 3, 0x7e);
  checkFormat<DataType::F8E5M2>(5, 2, 0x7b);
}

TEST(ElementTest, OverflowIsInfiniteIn16BitsAndSaturatesIn8) {
  const float huge = std::numeric_limits<float>::max();
  EXPECT_EQ(toHalf(65520.0f).bits, 0x7c00);
  EXPECT_EQ(toHalf(std::nextafter(65520.0f, 0.0f)).bits, 0x7bff);
  EXPECT_EQ(toHalf(-huge).bits, 0xfc00);
  EXPECT_EQ(toBfloat16(huge).bits, 0x7f80);
  for (const float big : {464.0f, 465.0f, 1e6f, huge, INFINITY}) {
    EXPECT_EQ(toFp8E4M3(big).bits, 0x7e) << big;
    EXPECT_EQ(toFp8E4M3(-big).bits, 0xfe) << big;
  }
  for (const float big : {61440.0f, 65536.0f, huge, INFINITY}) {
    EXPECT_EQ(toFp8E5M2(big).bits, 0x7b) << big;
    EXPECT_EQ(toFp8E5M2(-big).bits, 0xfb) << big;
  }
  EXPECT_EQ(toFloat(Half{0xfc00}), -INFINITY);
  EXPECT_EQ(toFloat(Fp8E5M2{0x7c}), INFINITY);
}

TEST(ElementTest, NansBecomeOneNan) {
  for (const uint32_t bits : {0x7f800001u, 0x7fc00000u, 0xffffffffu, 0xff800001u, 0xffc12345u}) {
    const float nan = floatOf(bits);
    EXPECT_EQ(bitsOf(narrow<DataType::F32>(nan)), kNanF32);
    EXPECT_EQ(toHalf(nan).bits, 0x7fff);
    EXPECT_EQ(toBfloat16(nan).bits, 0x7fff);
    EXPECT_EQ(toFp8E4M3(nan).bits, 0x7f);
    EXPECT_EQ(toFp8E5M2(nan).bits, 0x7f);
  }
  EXPECT_EQ(bitsOf(narrow<DataType::F64>(doubleOf(0xfff0000000000001ull))), kNanF64);
  EXPECT_TRUE(std::isnan(toFloat(Half{0xfc01})));
  EXPECT_TRUE(std::isnan(toFloat(Bfloat16{0x7f81})));
  EXPECT_TRUE(std::isnan(toFloat(Fp8E4M3{0xff})));
  EXPECT_TRUE(std::isnan(toFloat(Fp8E5M2{0x7d})));
}

template <class T>
void checkExtremes() {
  const T nan = std::numeric_limits<T>::quiet_NaN(), inf = std::numeric_limits<T>::infinity();
  const T plus = 0, minus = -plus;
  for (int swap = 0; swap < 2; ++swap) {
    const auto max = [&](T a, T b) { return swap ? reduce<ReduceOp::Max>(b, a) : reduce<ReduceOp::Max>(a, b); };
    const auto min = [&](T a, T b) { return swap ? reduce<ReduceOp::Min>(b, a) : reduce<ReduceOp::Min>(a, b); };
    EXPECT_FALSE(std::signbit(max(plus, minus)));
    EXPECT_TRUE(std::signbit(min(plus, minus)));
    EXPECT_EQ(max(nan, T{-3}), T{-3});
    EXPECT_EQ(min(nan, inf), inf);
    EXPECT_EQ(max(nan, -inf), -inf);
    EXPECT_TRUE(std::isnan(max(nan, -nan)));
    EXPECT_EQ(max(T{1}, T{2}), T{2});
    EXPECT_EQ(min(T{1}, T{2}), T{1});
    EXPECT_EQ(min(-inf, T{2}), -inf);
  }
}

TEST(ElementTest, MaxAndMinPassOverNansAndOrderZeros) {
  checkExtremes<float>();
  checkExtremes<double>();
}

TEST(ElementTest, IntegersWrapAndKeepTheirSignedness) {
  EXPECT_EQ((reduce<ReduceOp::Sum>(int8_t{100}, int8_t{100})), int8_t{-56});
  EXPECT_EQ((reduce<ReduceOp::Prod>(uint8_t{200}, uint8_t{3})), uint8_t{88});
  EXPECT_EQ((reduce<ReduceOp::Sum>(std::numeric_limits<int32_t>::max(), 1)), std::numeric_limits<int32_t>::min());
  EXPECT_EQ((reduce<ReduceOp::Prod>(std::numeric_limits<int64_t>::min(), int64_t{-1})), std::numeric_limits<int64_t>::min());
  EXPECT_EQ((reduce<ReduceOp::Max>(int8_t{-1}, int8_t{1})), int8_t{1});
  EXPECT_EQ((reduce<ReduceOp::Max>(uint8_t{0xff}, uint8_t{1})), uint8_t{0xff});
  EXPECT_EQ((reduce<ReduceOp::Min>(~uint64_t{0}, uint64_t{1})), uint64_t{1});
  EXPECT_EQ((reduce<ReduceOp::Min>(int64_t{-1}, int64_t{1})), int64_t{-1});
}

TEST(ElementTest, DivideTruncatesTowardsZero) {
  EXPECT_EQ(divide<DataType::I8>(int8_t{-3}, 2), int8_t{-1});
  EXPECT_EQ(divide<DataType::I8>(int8_t{-128}, 1000), int8_t{0});
  EXPECT_EQ(divide<DataType::U8>(uint8_t{144}, 2), uint8_t{72});
  EXPECT_EQ(divide<DataType::U32>(0xffffffffu, 2), 0x7fffffffu);
  EXPECT_EQ(divide<DataType::I64>(int64_t{-7}, 3), int64_t{-2});
  EXPECT_EQ(divide<DataType::U64>(~uint64_t{0}, 10), ~uint64_t{0} / 10);
  EXPECT_EQ(divide<DataType::F32>(7.0f, 2), 7.0f);
}

TEST(ElementTest, ScaledContributionsAreRoundedFirst) {
  // Half of 60000 twice is 60000 again: no overflow, because each contribution is scaled before the sum.
  const float half = widen<DataType::F16>(factorOf<DataType::F16>({.factor = 0x3800, .hasFactor = true}));
  EXPECT_EQ(half, 0.5f);
  const float part = scale<DataType::F16>(toFloat(toHalf(60000.0f)), half);
  EXPECT_EQ(narrow<DataType::F16>(reduce<ReduceOp::Sum>(part, part)).bits, toHalf(60000.0f).bits);
  // The smallest subnormal halves to zero (a tie, to even) and stays zero however often it is added.
  EXPECT_EQ(scale<DataType::F16>(toFloat(Half{1}), half), 0.0f);
  EXPECT_EQ(scale<DataType::F8E4M3>(toFloat(Fp8E4M3{1}), 0.5f), 0.0f);
  EXPECT_EQ(scale<DataType::I32>(1 << 30, 4), 0);
}

TEST(ElementTest, FactorsAreOneElementLowBytesFirst) {
  EXPECT_EQ(factorOf<DataType::F32>({.factor = 0xdeadbeef40400000ull}), 3.0f);
  EXPECT_EQ(factorOf<DataType::F64>({.factor = 0x4008000000000000ull}), 3.0);
  EXPECT_EQ(factorOf<DataType::I8>({.factor = 0xff}), int8_t{-1});
  EXPECT_EQ(factorOf<DataType::BF16>({.factor = 0x3f80}).bits, 0x3f80);
  EXPECT_EQ(factorOf<DataType::U64>({.factor = ~0ull}), ~0ull);
}

TEST(ElementTest, SubnormalsAreKept) {
  const float tiny = floatOf(1);
  EXPECT_EQ(bitsOf(reduce<ReduceOp::Sum>(tiny, tiny)), 2u);
  EXPECT_EQ(bitsOf(scale<DataType::F32>(floatOf(0x00800000u), 0.5f)), 0x00400000u);
  EXPECT_EQ(toBfloat16(floatOf(0x00010000u)).bits, 1);
}

static_assert(sizeof(Half) == 2 && sizeof(Bfloat16) == 2 && sizeof(Fp8E4M3) == 1 && sizeof(Fp8E5M2) == 1);

}  // namespace
}  // namespace tutti::element_test
