#include "bench/checks.h"

#include <gtest/gtest.h>

namespace tutti::bench::checks_test {
namespace {

TEST(CheckCost, IsTheMedianOfTheDifferencesOfEachBlock) {
  CheckCost cost;
  cost.without = {100, 200, 300, 400};  // the machine grew slower meanwhile
  cost.with = {105, 210, 309, 900};
  const CheckCostSummary summary = summarize(cost);
  EXPECT_EQ(summary.difference, 9);
  EXPECT_EQ(summary.lowQuarter, 5);
  EXPECT_EQ(summary.highQuarter, 10);
  EXPECT_EQ(summary.with, 210);
  EXPECT_EQ(summary.without, 200);
}

TEST(CheckCost, AllowsTheLargerOfTwoPerCentAndTwentyNanoseconds) {
  const auto of = [](double with, double without) {
    CheckCost cost;
    cost.with = {with};
    cost.without = {without};
    return summarize(cost);
  };
  EXPECT_EQ(of(300, 300).allowed, 20);
  EXPECT_TRUE(of(320, 300).isWithin());
  EXPECT_FALSE(of(321, 300).isWithin());
  EXPECT_EQ(of(10000, 10000).allowed, 200);
  EXPECT_TRUE(of(10200, 10000).isWithin());
  EXPECT_FALSE(of(10201, 10000).isWithin());
}

TEST(CheckCost, IsMeasuredInBlocksThatTakeTurns) {
  CheckCostOptions options;
  options.blocks = 7;
  options.calls = 10;
  const auto cost = measureChecks(options);
  ASSERT_TRUE(cost) << cost.error().text();
  EXPECT_EQ(cost->with.size(), 7U);
  EXPECT_EQ(cost->without.size(), 7U);
  for (const double ns : cost->with) EXPECT_GT(ns, 0);
}

}  // namespace
}  // namespace tutti::bench::checks_test
