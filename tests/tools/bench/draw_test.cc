// What draw.h promises: that results do not depend on the order, because nothing is ever rounded.
#include "bench/draw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "bench/float_format.h"
#include "bench/reference.h"

namespace tutti::bench::draw_test {
namespace {

constexpr DataType kFloats[] = {DataType::F16, DataType::F32, DataType::F64, DataType::BF16, DataType::F8E4M3, DataType::F8E5M2};

/// Reduces in the order given and rounds to the type after every step.
uint64_t reduceInOrder(DataType type, RedOp op, const std::vector<uint64_t>& codes, const std::vector<uint64_t>& scalars,
                       const std::vector<size_t>& order) {
  const FloatFormat& format = formatOf(type);
  const auto contribution = [&](size_t r) {
    double x = decode(format, codes[r]);
    if (op == RedOp::MulSum) x = roundTo(format, x * decode(format, scalars[r]));
    if (op == RedOp::Avg) x = roundTo(format, x * roundTo(format, 1.0 / static_cast<double>(codes.size())));
    return x;
  };
  double result = contribution(order[0]);
  for (size_t i = 1; i < order.size(); ++i) {
    const double x = contribution(order[i]);
    result = roundTo(format, op == RedOp::Prod ? result * x : result + x);
  }
  return encode(format, result);
}

TEST(Draw, EveryOrderOfFloatsGivesTheReference) {
  for (const DataType type : kFloats) {
    for (const RedOp op : {RedOp::Sum, RedOp::Prod, RedOp::MulSum, RedOp::Avg}) {
      for (const size_t ranks : {1, 2, 3, 4, 5, 8, 16, 17, 40}) {
        if (op == RedOp::Avg && !isExactAverage(ranks)) continue;
        std::vector<uint64_t> codes(ranks);
        std::vector<uint64_t> scalars(ranks);
        for (size_t r = 0; r < ranks; ++r) scalars[r] = drawScalar(type, static_cast<int>(r));
        for (uint64_t index = 0; index < 200; ++index) {
          drawElement(type, op, 9, index, codes);
          const Expected expected = reduceReference(type, op, codes, scalars);
          ASSERT_EQ(expected.tolerance, 0);
          std::vector<size_t> order(ranks);
          std::iota(order.begin(), order.end(), size_t{0});
          for (int shuffle = 0; shuffle < 3; ++shuffle) {
            ASSERT_EQ(reduceInOrder(type, op, codes, scalars, order), expected.code)
                << name(type) << " " << name(op) << " ranks " << ranks << " index " << index;
            std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(ranks / 2), order.end());
            std::reverse(order.begin() + static_cast<std::ptrdiff_t>(ranks / 3), order.end());
          }
        }
      }
    }
  }
}

TEST(Draw, InexactAveragesStayWithinTheTolerance) {
  for (const DataType type : kFloats) {
    for (const size_t ranks : {3, 5, 7, 12, 17}) {
      std::vector<uint64_t> codes(ranks);
      std::vector<size_t> order(ranks);
      std::iota(order.begin(), order.end(), size_t{0});
      for (uint64_t index = 0; index < 500; ++index) {
        drawElement(type, RedOp::Avg, 1, index, codes);
        const Expected expected = reduceReference(type, RedOp::Avg, codes, {});
        const double result = decode(formatOf(type), reduceInOrder(type, RedOp::Avg, codes, {}, order));
        ASSERT_LE(std::fabs(result - expected.value), expected.tolerance) << name(type) << " ranks " << ranks;
      }
    }
  }
}

TEST(Draw, ValuesDiffer) {
  for (const DataType type : kFloats) {
    std::set<uint64_t> seen;
    std::vector<uint64_t> codes(4);
    for (uint64_t index = 0; index < 500; ++index) {
      drawElement(type, RedOp::Sum, 1, index, codes);
      seen.insert(codes[2]);
    }
    EXPECT_GE(seen.size(), 10u) << name(type);
  }
}

TEST(Draw, MovesHoldNaNs) {
  std::vector<uint64_t> codes(1);
  int special = 0;
  for (uint64_t index = 0; index < 8191; ++index) {
    drawElement(DataType::F8E5M2, std::nullopt, 1, index, codes);
    special += isSpecial(formatOf(DataType::F8E5M2), codes[0]);
  }
  EXPECT_GT(special, 0);
}

}  // namespace
}  // namespace tutti::bench::draw_test
