#include "algo/step.h"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::algo::step_test {
namespace {

std::vector<int32_t> ranksOf(const Peers& peers) {
  std::vector<int32_t> ranks;
  for (int32_t i = 0; i < peers.count; ++i) ranks.push_back(peers.at(i).value);
  return ranks;
}

TEST(Peers, AreAListOrADistanceOrPlaces) {
  constexpr int32_t kOrder[] = {5, 3, 1, 0, 2, 4};
  EXPECT_EQ(ranksOf(Peers()), std::vector<int32_t>{});
  EXPECT_EQ(ranksOf(Peers(Rank(3), Rank(1))), (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(ranksOf(Peers::doubling(Rank(5), 7, 3)), (std::vector<int32_t>{6, 0, 2}));
  EXPECT_EQ(ranksOf(Peers::others(Rank(2), 5)), (std::vector<int32_t>{3, 4, 0, 1}));
  EXPECT_EQ(ranksOf(Peers::others(Rank(0), 1)), std::vector<int32_t>());
  EXPECT_EQ(ranksOf(Peers::places(nullptr, 1, 2, 3)), (std::vector<int32_t>{1, 3, 5}));
  EXPECT_EQ(ranksOf(Peers::places(kOrder, 1, 2, 3)), (std::vector<int32_t>{3, 0, 4}));
  EXPECT_EQ(ranksOf(Peers::places(kOrder, 4, 1, 2)), (std::vector<int32_t>{2, 4}));
}

}  // namespace
}  // namespace tutti::algo::step_test
