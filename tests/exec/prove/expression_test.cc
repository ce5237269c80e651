#include "exec/prove/expression.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace tutti::exec::prove::expression_test {
namespace {

class ExpressionTest : public ::testing::Test {
 protected:
  void SetUp() override { pool_.reset(4); }
  Expr leaf(int32_t rank) { return pool_.leaf(Rank(rank)); }
  Expressions pool_;
};

TEST_F(ExpressionTest, EqualComputationsAreOneId) {
  OrderBuilder sum(pool_);
  EXPECT_EQ(sum.add(leaf(0), leaf(1)), sum.add(leaf(0), leaf(1)));
  EXPECT_EQ(sum.addRanks(3), sum.add(leaf(0), leaf(1), leaf(2)));
  EXPECT_EQ(sum.addRanks(1), leaf(0));
}

TEST_F(ExpressionTest, OrderAndRoundingMakeADifference) {
  OrderBuilder sum(pool_);
  EXPECT_NE(sum.add(leaf(0), leaf(1)), sum.add(leaf(1), leaf(0)));
  EXPECT_NE(sum.add(leaf(0), leaf(1), leaf(2)), sum.add(sum.add(leaf(0), leaf(1)), leaf(2)));
}

TEST_F(ExpressionTest, CountsContributions) {
  OrderBuilder sum(pool_);
  const Expr a = sum.add(leaf(0), leaf(1));
  EXPECT_EQ(pool_.contributions(sum.add(a, leaf(3), a)), (std::vector<uint64_t>{2, 2, 0, 1}));
  EXPECT_EQ(pool_.contributions(leaf(2)), (std::vector<uint64_t>{0, 0, 1, 0}));
  Expr doubled = leaf(0);
  for (int i = 0; i < 200; ++i) doubled = sum.add(doubled, doubled);
  EXPECT_GT(pool_.contributions(doubled)[0], 1000u);  // saturates, and does not take 2^200 steps
}

TEST_F(ExpressionTest, ReadsAsText) {
  OrderBuilder sum(pool_);
  EXPECT_EQ(pool_.text(sum.add(leaf(2), sum.add(leaf(1), leaf(0)))), "r2+(r1+r0)");
  Expr chain = leaf(0);
  for (int i = 0; i < 500; ++i) chain = sum.add(leaf(i % 4), chain);
  EXPECT_LT(pool_.text(chain).size(), 200u);
}

TEST_F(ExpressionTest, StaysCorrectWhileItGrows) {
  pool_.reset(100);
  OrderBuilder sum(pool_);
  const auto all = [&] {
    std::vector<Expr> ids;
    for (int a = 0; a < 100; ++a)
      for (int b = 0; b < 100; ++b) ids.push_back(sum.add(leaf(a), leaf(b)));
    return ids;
  };
  const std::vector<Expr> first = all();
  EXPECT_EQ(first, all());
  EXPECT_EQ(std::set<Expr>(first.begin(), first.end()).size(), 10000u);
}

}  // namespace
}  // namespace tutti::exec::prove::expression_test
