#include "connect/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include "connect/channels.h"

namespace tutti::connect::layout_test {
namespace {

std::vector<int32_t> shuffled(int32_t ranks, uint32_t seed) {
  std::vector<int32_t> order(static_cast<size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(seed);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return order;
}

std::vector<algo::LayoutView> viewsOf(const Layout& layout) {
  std::vector<algo::LayoutView> views;
  for (int32_t r = 0; r < layout.ranks(); ++r) views.push_back(layout.view(Rank(r)));
  return views;
}

/// Ranks from here to the root, both included; more than there are ranks when the parents go in a circle.
int32_t depthOf(const std::vector<algo::LayoutView>& views, int32_t tree, int32_t rank) {
  int32_t depth = 1;
  const auto limit = static_cast<int32_t>(views.size());
  for (; depth <= limit; ++depth) {
    const Rank parent = views[static_cast<size_t>(rank)].tree[tree].parent;
    if (parent.value < 0) return depth;
    rank = parent.value;
  }
  return depth;
}

int32_t levels(int32_t ranks) { return static_cast<int32_t>(std::bit_width(static_cast<uint32_t>(ranks - 1))) + 1; }  // ceil(log2) + 1

void checkTrees(const Layout& layout) {
  const std::vector<algo::LayoutView> views = viewsOf(layout);
  const int32_t n = layout.ranks();
  std::vector<int32_t> innerIn(static_cast<size_t>(n), 0);
  for (int32_t t = 0; t < algo::kTrees; ++t) {
    int32_t roots = 0;
    int32_t links = 0;
    for (int32_t r = 0; r < n; ++r) {
      const algo::Tree& tree = views[static_cast<size_t>(r)].tree[t];
      roots += tree.isRoot() ? 1 : 0;
      links += tree.children.count;
      innerIn[static_cast<size_t>(r)] += tree.isLeaf() ? 0 : 1;
      ASSERT_LE(tree.children.count, 2);
      ASSERT_LE(depthOf(views, t, r), levels(n)) << "ranks " << n << " tree " << t << " rank " << r;
      for (int32_t i = 0; i < tree.children.count; ++i)
        ASSERT_EQ(views[static_cast<size_t>(tree.children.rank[i].value)].tree[t].parent, Rank(r)) << "ranks " << n << " tree " << t;
    }
    ASSERT_EQ(roots, 1);
    ASSERT_EQ(links, n - 1);  // with one root, no circle and n - 1 links: it spans
  }
  ASSERT_LE(std::count(innerIn.begin(), innerIn.end(), 2), 1) << "ranks " << n;
}

TEST(Layout, DoubleBinaryTreesForEveryRankCount) {
  for (int32_t n = 1; n <= 300; ++n) {
    checkTrees(Layout::natural(n));
    if (n % 7 == 0) checkTrees(Layout(shuffled(n, static_cast<uint32_t>(n))));
    if (HasFatalFailure()) return;
  }
}

TEST(Layout, NoRankIsAParentOfTwoInBothTrees) {
  for (int32_t n = 2; n <= 300; ++n) {
    const std::vector<algo::LayoutView> views = viewsOf(Layout::natural(n));
    for (const algo::LayoutView& v : views)
      ASSERT_LE(v.tree[0].children.count + v.tree[1].children.count, 3) << "ranks " << n << " rank " << v.rank.value;
  }
}

TEST(Layout, RingsFollowTheOrder) {
  const std::vector<int32_t> order = shuffled(13, 5);
  const Layout layout(order);
  EXPECT_EQ(layout.ranks(), 13);
  for (size_t i = 0; i < order.size(); ++i) {
    const algo::LayoutView v = layout.view(Rank(order[i]), Rank(4));
    EXPECT_EQ(v.rank, Rank(order[i]));
    EXPECT_EQ(v.ranks, 13);
    EXPECT_EQ(v.root, Rank(4));
    EXPECT_EQ(v.ring.self(), v.rank);
    EXPECT_EQ(v.ring.next(), Rank(order[(i + 1) % 13]));
    EXPECT_EQ(v.ring.prev(), Rank(order[(i + 12) % 13]));
  }
}

TEST(Layout, TreesAreBuiltOverTheSameOrder) {
  const std::vector<int32_t> order = shuffled(11, 2);
  const std::vector<algo::LayoutView> natural = viewsOf(Layout::natural(11));
  const Layout layout(order);
  for (int32_t position = 0; position < 11; ++position) {
    const auto rankAt = [&](Rank p) { return p.value < 0 ? p : Rank(order[static_cast<size_t>(p.value)]); };
    const algo::LayoutView v = layout.view(rankAt(Rank(position)));
    for (int32_t t = 0; t < algo::kTrees; ++t) EXPECT_EQ(v.tree[t].parent, rankAt(natural[static_cast<size_t>(position)].tree[t].parent));
  }
}

TEST(Layout, NodesAreConsecutivePlacesOfTheOrder) {
  const std::vector<int32_t> order = shuffled(12, 3);
  const Layout layout(order, 4);
  EXPECT_EQ(layout.nodes(), 3);
  for (int32_t place = 0; place < 12; ++place) {
    const algo::LayoutView view = layout.view(Rank(order[static_cast<size_t>(place)]));
    EXPECT_EQ(view.grid.node, place / 4);
    EXPECT_EQ(view.grid.local, place % 4);
    EXPECT_EQ(view.grid.at(0, 0), view.rank);
    EXPECT_EQ(view.grid.inside().self(), view.rank);
    EXPECT_EQ(view.grid.across().self(), view.rank);
    EXPECT_EQ(view.grid.inside().next().value, order[static_cast<size_t>(place / 4 * 4 + (place + 1) % 4)]);
    EXPECT_EQ(view.grid.across().next().value, order[static_cast<size_t>((place + 4) % 12)]);
    EXPECT_EQ(view.grid.at(-1, 1).value, order[static_cast<size_t>((place / 4 + 2) % 3 * 4 + (place + 1) % 4)]);
  }
}

TEST(Layout, WhatDoesNotDivideIsOneNode) {
  for (const int32_t nodeRanks : {-1, 0, 4, 5, 7}) {
    const Layout layout = Layout::natural(6, nodeRanks);
    EXPECT_EQ(layout.nodes(), 1) << nodeRanks;
    EXPECT_EQ(layout.view(Rank(3)).grid.locals, 6) << nodeRanks;
  }
}

TEST(Layout, HostsStandBesideEachOther) {
  const std::vector<int32_t> hostOf = {7, 3, 7, 3, 3, 7};
  const Layout layout = Layout::byHost(hostOf);
  EXPECT_EQ(layout.nodes(), 2);
  int32_t crossings = 0;
  for (int32_t r = 0; r < 6; ++r) {
    const algo::LayoutView view = layout.view(Rank(r));
    crossings += hostOf[static_cast<size_t>(view.ring.next().value)] != hostOf[static_cast<size_t>(r)] ? 1 : 0;
    EXPECT_EQ(view.grid.node, hostOf[static_cast<size_t>(r)] == 7 ? 0 : 1) << "rank " << r;
  }
  EXPECT_EQ(crossings, 2);
  EXPECT_EQ(Layout::byHost({0, 1, 0}).nodes(), 1) << "hosts that differ in size are no nodes";
  EXPECT_EQ(Layout::byHost({0, 1, 0}).view(Rank(0)).ring.next(), Rank(2));
}

std::vector<int32_t> ringOf(const Layout& layout) {
  const algo::LayoutView view = layout.view(Rank(0));
  std::vector<int32_t> order;
  for (int32_t i = 0; i < layout.ranks(); ++i) order.push_back(view.ring.order[i]);
  return order;
}

TEST(Layout, NeighboursShareHostThenNumaNodeThenCache) {
  const Layout layout = Layout::byPlace({{0, 1, 8}, {1, 0, 0}, {0, 0, 0}, {0, 1, 9}, {0, 1, 8}, {1, 0, 0}, {1, 1, 0}, {0, 0, 0}});
  EXPECT_EQ(ringOf(layout), (std::vector<int32_t>{0, 4, 3, 2, 7, 1, 5, 6}));
  EXPECT_EQ(layout.nodes(), 1);  // five ranks on one host, three on the other
  checkTrees(layout);
  EXPECT_EQ(ringOf(Layout::byPlace({{0, 0, 0}, {0, 1, 0}, {1, 0, 0}, {1, 0, 0}})), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(Layout::byPlace({{0, 0, 0}, {0, 1, 0}, {1, 0, 0}, {1, 0, 0}}).nodes(), 2);
  // One numa node's number is not another host's, and no cache's that of another NUMA node.
  EXPECT_EQ(ringOf(Layout::byPlace({{0, 0, 4}, {0, 1, 4}, {0, 0, 4}, {0, 1, 5}, {0, 1, 4}})), (std::vector<int32_t>{0, 2, 1, 4, 3}));
  EXPECT_EQ(ringOf(Layout::byPlace({{0}, {0}, {0}})), (std::vector<int32_t>{0, 1, 2}));  // nothing is known
}

/// Whoever orders them is asked once for each host, with its nodes in the order of their first ranks.
TEST(Layout, NumaNodesComeInTheOrderThatIsWished) {
  std::vector<std::pair<int32_t, std::vector<int32_t>>> asked;
  const auto backwards = [&](int32_t host, std::span<const int32_t> nodes) {
    asked.emplace_back(host, std::vector<int32_t>(nodes.begin(), nodes.end()));
    return std::vector<int32_t>(nodes.rbegin(), nodes.rend());
  };
  const Layout layout = Layout::byPlace({{0, 5, 1}, {1, 2, 0}, {0, 3, 0}, {0, 5, 2}, {0, 5, 1}, {0, -1, 0}}, backwards);
  EXPECT_EQ(asked, (std::vector<std::pair<int32_t, std::vector<int32_t>>>{{0, {5, 3, -1}}, {1, {2}}}));
  EXPECT_EQ(ringOf(layout), (std::vector<int32_t>{5, 2, 0, 4, 3, 1}));
  checkTrees(layout);
}

NodeGraphs nodeOf(std::vector<int32_t> ring, std::vector<int32_t> chain, topo::Pattern pattern) {
  NodeGraphs node;
  node.ranks = ring;
  std::sort(node.ranks.begin(), node.ranks.end());
  node.rings = {std::move(ring)};
  node.trees = {std::move(chain)};
  node.treePattern = pattern;
  return node;
}

TEST(Layout, OfChannelsKeepsNodesTogetherAndTakesTheirTrees) {
  const std::vector<NodeGraphs> nodes = {nodeOf({2, 0, 4}, {0, 4, 2}, topo::Pattern::Tree),
                                         nodeOf({5, 1, 3}, {3, 1, 5}, topo::Pattern::Tree)};
  const auto channels = connectNodes(nodes, {});
  ASSERT_TRUE(channels) << channels.error().text();
  const Layout layout = Layout::ofChannels(*channels, nodes);
  EXPECT_EQ(ringOf(layout), (std::vector<int32_t>{2, 0, 4, 5, 1, 3}));
  EXPECT_EQ(layout.nodes(), 2);
  for (int32_t t = 0; t < algo::kTrees; ++t) {
    int32_t links = 0;
    for (int32_t r = 0; r < 6; ++r) {
      const algo::Tree tree = layout.view(Rank(r)).tree[t];
      links += tree.children.count;
      for (int32_t i = 0; i < tree.children.count; ++i) EXPECT_EQ(layout.view(tree.children.at(i)).tree[t].parent, Rank(r));
    }
    EXPECT_EQ(links, 5);
    EXPECT_EQ(layout.view(Rank(4)).tree[t].parent, Rank(0)) << "the chain of the first node";
  }
  EXPECT_NE(layout.view(Rank(0)).tree[0].isRoot(), layout.view(Rank(0)).tree[1].isRoot()) << "the second tree has another root";
}

NodeGraphs nodeOf(std::vector<std::vector<int32_t>> rings, std::vector<std::vector<int32_t>> chains) {
  NodeGraphs node = nodeOf(rings[0], chains[0], topo::Pattern::Tree);
  node.rings = std::move(rings);
  node.trees = std::move(chains);
  node.ringGBpsIntra = 20;
  node.treeGBpsIntra = 10;
  return node;
}

Layout layoutOf(const std::vector<NodeGraphs>& nodes, const ChannelLimits& limits = {}) {
  const auto channels = connectNodes(nodes, limits);
  EXPECT_TRUE(channels) << channels.error().text();
  return Layout::ofChannels(*channels, nodes);
}

std::vector<int32_t> chainOf(const Layout& layout, int32_t tree, int32_t channel) {
  std::vector<int32_t> chain;
  const auto at = [&](int32_t rank) { return layout.view(Rank(rank), Rank(0), ChannelId(channel)).tree[tree]; };
  for (int32_t r = 0; r < layout.ranks(); ++r)
    if (at(r).isRoot()) chain.push_back(r);
  while (chain.size() < static_cast<size_t>(layout.ranks()) && at(chain.back()).children.count == 1)
    chain.push_back(at(chain.back()).children.at(0).value);
  return chain;
}

TEST(Layout, ChannelsTakeTheSearchedRingsAndChainsInTurn) {
  const std::vector<std::vector<int32_t>> rings = {{0, 1, 2, 3}, {0, 2, 3, 1}, {3, 2, 1, 0}};
  const std::vector<std::vector<int32_t>> chains = {{0, 1, 2, 3}, {1, 0, 2, 3}, {2, 3, 0, 1}};
  const Layout layout = layoutOf({nodeOf(rings, chains)});
  ASSERT_EQ(layout.tracks(), 3);
  const std::vector<std::vector<int32_t>> fromZero = {{0, 1, 2, 3}, {0, 2, 3, 1}, {0, 3, 2, 1}};
  EXPECT_EQ(layout.rings(), fromZero);
  for (int32_t channel = 0; channel < 8; ++channel) {
    const auto track = static_cast<size_t>(channel % 3);
    for (int32_t r = 0; r < 4; ++r) {
      const algo::LayoutView view = layout.view(Rank(r), Rank(2), ChannelId(channel));
      EXPECT_EQ(view.root, Rank(2));
      EXPECT_EQ(view.ring.self(), Rank(r));
      const auto at = std::find(fromZero[track].begin(), fromZero[track].end(), r) - fromZero[track].begin();
      EXPECT_EQ(view.ring.next().value, fromZero[track][static_cast<size_t>(at + 1) % 4]);
    }
    EXPECT_EQ(chainOf(layout, 0, channel), chains[track]);
    EXPECT_EQ(chainOf(layout, 1, channel), chains[(track + 1) % 3]) << "each chain serves two halves of the data";
  }
}

/// One layout takes less memory: further tracks only where they bring further links.
TEST(Layout, WhatComesAgainIsNoFurtherTrack) {
  const std::vector<std::vector<int32_t>> chains = {{0, 1, 2}, {1, 2, 0}, {0, 1, 2}, {1, 2, 0}};
  const Layout rotations = layoutOf({nodeOf({{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {0, 1, 2}}, chains)});
  EXPECT_EQ(rotations.tracks(), 1) << "all rings are one";
  EXPECT_EQ(rotations.ringGBps(1), 80) << "four searched channels on one track";
  const Layout pairs = layoutOf({nodeOf({{0, 1, 2}, {0, 2, 1}, {1, 2, 0}, {0, 2, 1}}, chains)});
  EXPECT_EQ(pairs.tracks(), 2) << "the third and fourth are the first two again";
  const Layout reversed = layoutOf({nodeOf({{0, 1, 2}, {2, 1, 0}}, {{0, 1, 2}, {0, 1, 2}})});
  EXPECT_EQ(reversed.tracks(), 2) << "the other direction of the same links";
}

TEST(Layout, TracksOfSeveralNodesHaveDoubleTrees) {
  const std::vector<NodeGraphs> nodes = {nodeOf({{0, 1, 2}, {0, 2, 1}}, {{0, 1, 2}, {2, 1, 0}}),
                                         nodeOf({{3, 4, 5}, {5, 4, 3}}, {{3, 4, 5}, {5, 4, 3}})};
  const Layout layout = layoutOf(nodes);
  ASSERT_EQ(layout.tracks(), 2);
  EXPECT_EQ(layout.nodes(), 2);
  EXPECT_EQ(layout.rings(), (std::vector<std::vector<int32_t>>{{0, 1, 2, 3, 4, 5}, {0, 2, 1, 5, 4, 3}}));
  for (int32_t channel = 0; channel < 2; ++channel) {
    for (int32_t t = 0; t < algo::kTrees; ++t) {
      int32_t links = 0;
      int32_t roots = 0;
      for (int32_t r = 0; r < 6; ++r) {
        const algo::Tree tree = layout.view(Rank(r), Rank(0), ChannelId(channel)).tree[t];
        links += tree.children.count;
        roots += tree.isRoot() ? 1 : 0;
        for (int32_t i = 0; i < tree.children.count; ++i)
          EXPECT_EQ(layout.view(tree.children.at(i), Rank(0), ChannelId(channel)).tree[t].parent, Rank(r));
      }
      EXPECT_EQ(links, 5);
      EXPECT_EQ(roots, 1);
    }
    const auto rootOf = [&](int32_t tree) {
      for (int32_t r = 0; r < 6; ++r)
        if (layout.view(Rank(r), Rank(0), ChannelId(channel)).tree[tree].isRoot()) return r / 3;
      return -1;
    };
    EXPECT_NE(rootOf(0), rootOf(1)) << "the roots are on different nodes";
  }
}

/// What the slowest track carries decides: channels share the data alike.
TEST(Layout, SpeedIsThatOfTheTracksInUse) {
  const std::vector<std::vector<int32_t>> rings = {{0, 1, 2, 3}, {0, 2, 3, 1}, {3, 2, 1, 0}};
  const Layout layout = layoutOf({nodeOf(rings, rings)});
  EXPECT_EQ(layout.ringGBps(1), 20);
  EXPECT_EQ(layout.ringGBps(2), 40);
  EXPECT_EQ(layout.ringGBps(3), 60);
  EXPECT_EQ(layout.ringGBps(4), 40) << "one track has half of the data";
  EXPECT_EQ(layout.ringGBps(32), 20.0 * 32 / 11);
  EXPECT_EQ(layout.treeGBps(3), 30);
  EXPECT_EQ(Layout::natural(4).ringGBps(8), 0) << "not known";
}

/// A bound on channels leaves the first ones.
TEST(Layout, BoundsOnChannelsLeaveTheFirstTracks) {
  const std::vector<std::vector<int32_t>> rings = {{0, 1, 2, 3}, {0, 2, 3, 1}, {3, 2, 1, 0}};
  EXPECT_EQ(layoutOf({nodeOf(rings, rings)}, {.most = 2}).tracks(), 2);
  EXPECT_EQ(layoutOf({nodeOf(rings, rings)}, {.most = 1}).tracks(), 1);
  EXPECT_EQ(layoutOf({nodeOf(rings, rings)}, {.fewest = 20}).tracks(), 3);
}

}  // namespace
}  // namespace tutti::connect::layout_test
