#include "prove/select.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tutti::tool::select_test {
namespace {

TEST(Select, NamesOfAlgorithms) {
  const auto* ring = exec::prove::findSubject(Collective::AllReduce, "ring");
  ASSERT_NE(ring, nullptr);
  for (const char* wanted : {"", "ring", "Ring", "AllReduce:ring", "all_reduce:ring", "all-reduce"})
    EXPECT_TRUE(isNamed(*ring, wanted)) << wanted;
  for (const char* wanted : {"tree", "Reduce:ring", "rings"}) EXPECT_FALSE(isNamed(*ring, wanted)) << wanted;
}

TEST(Select, RanksAndSlots) {
  ProveOptions options;
  options.algorithm = "ring";
  options.ranks = {3, 13};  // 13 is among the full cases only
  options.slots = {2};
  const auto cases = selectCases(options);
  ASSERT_TRUE(cases) << cases.error().text();
  ASSERT_FALSE(cases->empty());
  for (const auto& c : *cases) {
    EXPECT_TRUE(c.ranks == 3 || c.ranks == 13);
    EXPECT_EQ(c.slots, 2);
    EXPECT_EQ(c.algorithm->traits.name, "ring");
  }
}

TEST(Select, WhatMatchesNothingIsAnError) {
  ProveOptions options;
  options.algorithm = "hypercube";
  EXPECT_NE(selectCases(options).error().text().find("AllReduce:ring"), std::string::npos);
  options.algorithm = "";
  options.ranks = {65};
  EXPECT_NE(selectCases(options).error().text().find("65 ranks"), std::string::npos);
}

}  // namespace
}  // namespace tutti::tool::select_test
