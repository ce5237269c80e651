// divideInPlace against core/element.h's divide(), for every integer type.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/element.h"
#include "exec/host/reduce/kernels.h"

namespace tutti::exec::host::divide_test {
namespace {

constexpr int32_t kDivisors[] = {2, 3, 4, 5, 7, 16, 17, 100, 127, 128, 129, 255, 256, 257, 1000, 65535, 65536, 65537,
                                 1 << 30, INT32_MAX - 1, INT32_MAX};

/// Divides all of `values` at an odd address and compares each with the definition; the bytes around them stay.
template <DataType type>
void expectDivided(const std::vector<ElementOf<type>>& values, int32_t divisor) {
  using Element = ElementOf<type>;
  const size_t bytes = values.size() * sizeof(Element);
  std::vector<unsigned char> memory(bytes + 2, 0xa5);
  std::memcpy(&memory[1], values.data(), bytes);
  divideInPlace(&memory[1], values.size(), type, divisor);
  EXPECT_EQ(memory.front(), 0xa5);
  EXPECT_EQ(memory.back(), 0xa5);
  for (size_t i = 0; i < values.size(); ++i) {
    Element got;
    std::memcpy(&got, &memory[1 + i * sizeof got], sizeof got);
    ASSERT_EQ(got, divide<type>(values[i], divisor)) << name(type) << ' ' << +values[i] << " / " << divisor;
  }
}

template <DataType type>
void checkAllBytes() {
  std::vector<ElementOf<type>> values;
  for (int x = 0; x < 256; ++x) values.push_back(static_cast<ElementOf<type>>(x));
  for (int32_t divisor = 2; divisor < 300; ++divisor) expectDivided<type>(values, divisor);
  for (const int32_t divisor : kDivisors) expectDivided<type>(values, divisor);
}

/// Multiples of the divisor and their neighbours, both ends of the range, and random values.
template <DataType type>
void checkEdges() {
  using Element = ElementOf<type>;
  using Unsigned = std::make_unsigned_t<Element>;
  std::mt19937_64 random(5);
  std::vector<int32_t> divisors(std::begin(kDivisors), std::end(kDivisors));
  for (int i = 0; i < 40; ++i) divisors.push_back(static_cast<int32_t>(2 + random() % (INT32_MAX - 1)));
  for (const int32_t divisor : divisors) {
    std::vector<Element> values;
    for (int near = -3; near <= 3; ++near) {
      for (const Element end : {Element{0}, std::numeric_limits<Element>::min(), std::numeric_limits<Element>::max()})
        values.push_back(static_cast<Element>(static_cast<Unsigned>(end) + static_cast<Unsigned>(near)));
      for (int i = 0; i < 200; ++i) {
        const auto anywhere = static_cast<Unsigned>(random());
        const Unsigned multiple = anywhere - anywhere % static_cast<Unsigned>(divisor);
        values.push_back(static_cast<Element>(multiple + static_cast<Unsigned>(near)));
      }
    }
    expectDivided<type>(values, divisor);
  }
}

TEST(Divide, EveryByteByEveryDivisor) {
  checkAllBytes<DataType::I8>();
  checkAllBytes<DataType::U8>();
}

TEST(Divide, WordsAndLongsAtTheirEdges) {
  checkEdges<DataType::I32>();
  checkEdges<DataType::U32>();
  checkEdges<DataType::I64>();
  checkEdges<DataType::U64>();
}

TEST(Divide, FloatsAndNothingStayAsTheyAre) {
  float x = 7;
  divideInPlace(&x, 1, DataType::F32, 2);
  EXPECT_EQ(x, 7.0F);
  int32_t y = 7;
  divideInPlace(&y, 0, DataType::I32, 2);
  EXPECT_EQ(y, 7);
}

}  // namespace
}  // namespace tutti::exec::host::divide_test
