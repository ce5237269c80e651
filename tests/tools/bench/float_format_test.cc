#include "bench/float_format.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "bench/draw.h"
#include "core/element.h"

namespace tutti::bench::float_format_test {
namespace {

constexpr DataType kNarrow[] = {DataType::F16, DataType::BF16, DataType::F8E4M3, DataType::F8E5M2};

/// The library's own conversion, written differently: the two must agree where both are defined.
template <DataType type>
void compareWithCore() {
  using Element = ElementOf<type>;
  const FloatFormat& format = formatOf(type);
  for (uint32_t code = 0; code < 1u << (8 * sizeof(Element)); ++code) {
    if (isSpecial(format, code)) continue;
    const Element element = {static_cast<decltype(Element::bits)>(code)};
    ASSERT_EQ(decode(format, code), static_cast<double>(toFloat(element))) << code;
    ASSERT_EQ(encode(format, decode(format, code)), code);
  }
  for (uint64_t i = 0; i < 200000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(mixBits(1, i, 2)));
    if (!std::isfinite(value)) continue;
    // Most random floats overflow these types: bring half of them near 1.
    const float near = i % 2 ? value : std::ldexp(value, -std::ilogb(value == 0 ? 1 : value) + static_cast<int>(i % 40) - 24);
    ASSERT_EQ(encode(format, near), static_cast<uint64_t>(narrow<type>(near).bits)) << near;
  }
}

TEST(FloatFormat, AgreesWithTheLibraryOnNarrowTypes) {
  compareWithCore<DataType::F16>();
  compareWithCore<DataType::BF16>();
  compareWithCore<DataType::F8E4M3>();
  compareWithCore<DataType::F8E5M2>();
}

TEST(FloatFormat, FloatAndDoubleAreTheMachineTypes) {
  for (uint64_t i = 0; i < 200000; ++i) {
    const auto single = std::bit_cast<float>(static_cast<uint32_t>(mixBits(3, i, 0)));
    const auto wide = std::bit_cast<double>(mixBits(4, i, 0));
    if (std::isfinite(single)) {
      ASSERT_EQ(encode(formatOf(DataType::F32), single), std::bit_cast<uint32_t>(single));
      ASSERT_EQ(decode(formatOf(DataType::F32), std::bit_cast<uint32_t>(single)), static_cast<double>(single));
    }
    if (!std::isfinite(wide)) continue;
    ASSERT_EQ(encode(formatOf(DataType::F64), wide), std::bit_cast<uint64_t>(wide));
    ASSERT_EQ(decode(formatOf(DataType::F64), std::bit_cast<uint64_t>(wide)), wide);
    ASSERT_EQ(encode(formatOf(DataType::F32), wide), std::bit_cast<uint32_t>(static_cast<float>(wide))) << wide;
  }
}

TEST(FloatFormat, OverflowSaturatesFp8AndIsInfiniteElsewhere) {
  EXPECT_EQ(encode(formatOf(DataType::F16), 1e6), 0x7c00u);
  EXPECT_EQ(encode(formatOf(DataType::BF16), -1e39), 0xff80u);
  EXPECT_EQ(encode(formatOf(DataType::F8E4M3), 1e6), 0x7eu);
  EXPECT_EQ(encode(formatOf(DataType::F8E5M2), -1e6), 0xfbu);
}

TEST(FloatFormat, SpecialCodes) {
  for (const DataType type : kNarrow) EXPECT_FALSE(isSpecial(formatOf(type), encode(formatOf(type), formatOf(type).largest)));
  EXPECT_TRUE(isSpecial(formatOf(DataType::F8E4M3), 0xff));
  EXPECT_FALSE(isSpecial(formatOf(DataType::F8E4M3), 0x7e));
  EXPECT_TRUE(isSpecial(formatOf(DataType::F8E5M2), 0x7c));
  EXPECT_TRUE(isSpecial(formatOf(DataType::F64), 0x7ff0000000000000));
}

}  // namespace
}  // namespace tutti::bench::float_format_test
