#include "algo/layout.h"

#include <gtest/gtest.h>

namespace tutti::algo::layout_test {
namespace {

TEST(Ring, NeighboursGoRound) {
  const Ring ring{nullptr, 4, 3};
  EXPECT_EQ(ring.self(), Rank(3));
  EXPECT_EQ(ring.next(), Rank(0));
  EXPECT_EQ(ring.prev(), Rank(2));
  for (int32_t offset = -4; offset <= 4; ++offset) EXPECT_EQ(ring.at(offset), Rank((3 + offset + 4) % 4)) << offset;
}

TEST(Ring, FollowsItsOrder) {
  const int32_t order[] = {2, 0, 3, 1};
  const Ring ring{order, 4, 2};
  EXPECT_EQ(ring.self(), Rank(3));
  EXPECT_EQ(ring.next(), Rank(1));
  EXPECT_EQ(ring.prev(), Rank(0));
}

TEST(Ring, OfOneIsItsOwnNeighbour) {
  const Ring ring;
  EXPECT_EQ(ring.next(), ring.self());
  EXPECT_EQ(ring.prev(), ring.self());
}

TEST(Tree, KnowsRootsAndLeaves) {
  Tree tree;
  EXPECT_TRUE(tree.isRoot() && tree.isLeaf());
  tree.parent = Rank(0);
  tree.children.add(Rank(2));
  EXPECT_FALSE(tree.isRoot() || tree.isLeaf());
}

}  // namespace
}  // namespace tutti::algo::layout_test
