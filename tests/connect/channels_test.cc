// Channels over nodes: from the reference's own node graphs the reference's own rings and trees; from ours valid and balanced ones.
#include "connect/channels.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "topo/data.h"

namespace tutti::connect::channels_test {
namespace {

using Json = nlohmann::json;

std::vector<std::vector<int32_t>> ordersOf(const Json& graph) {
  std::vector<std::vector<int32_t>> orders;
  if (graph.value("computed", false)) {
    for (const Json& channel : graph["channels"]) orders.push_back(channel["gpus"].get<std::vector<int32_t>>());
  }
  return orders;
}

/// What rank 0's node brings, as the reference states it.
NodeGraphs firstNode(const Json& run, int sm) {
  const Json& graphs = run["graphs"];
  NodeGraphs node;
  node.rings = ordersOf(graphs["ring"]);
  node.trees = ordersOf(graphs["tree"]);
  node.chains = ordersOf(graphs["collnetChain"]);
  node.directs = ordersOf(graphs["collnetDirect"]);
  for (const auto& order : ordersOf(graphs["nvls"])) node.nvlsHeads.push_back(order[0]);
  node.ranks = node.rings[0];
  std::sort(node.ranks.begin(), node.ranks.end());
  node.treePattern = static_cast<topo::Pattern>(graphs["tree"]["pattern"].get<int>());
  node.crossNic = static_cast<topo::CrossNic>(graphs["ring"]["crossNic"].get<int>());
  node.ringGBpsIntra = graphs["ring"]["bwIntra"];
  if (graphs["collnetChain"].value("computed", false)) {
    node.chainGBpsIntra = graphs["collnetChain"]["bwIntra"];
    node.chainGBpsInter = graphs["collnetChain"]["bwInter"];
  }
  node.sm = sm;
  return node;
}

std::vector<NodeGraphs> nodesOf(const NodeGraphs& first, int ranks) {
  std::vector<NodeGraphs> nodes;
  const int32_t size = static_cast<int32_t>(first.ranks.size());
  for (int32_t start = 0; start < ranks; start += size) {
    std::vector<int32_t> own(static_cast<size_t>(size));
    std::iota(own.begin(), own.end(), start);
    nodes.push_back(renumbered(first, std::move(own)));
  }
  return nodes;
}

ChannelLimits limitsOf(const Json& run) {
  ChannelLimits limits;
  limits.collnet = run["collnet"].get<bool>();
  if (run.contains("environment")) {
    const Json& variables = run["environment"];
    if (variables.contains("NCCL_MAX_NCHANNELS")) limits.most = std::stoi(variables["NCCL_MAX_NCHANNELS"].get<std::string>());
    if (variables.contains("NCCL_MIN_NCHANNELS")) limits.fewest = std::stoi(variables["NCCL_MIN_NCHANNELS"].get<std::string>());
  }
  return limits;
}

void compareTrees(const Channels& ours, const Json& theirs, const std::string& name) {
  for (size_t c = 0; c < theirs.size(); ++c) {
    for (size_t rank = 0; rank < static_cast<size_t>(ours.ranks); ++rank) {
      const TreeLinks& links = ours.trees[c][rank];
      EXPECT_EQ(links.up, theirs[c]["up"][rank].get<int>()) << name << " channel " << c << " rank " << rank;
      EXPECT_EQ(std::vector<int>(links.down.begin(), links.down.end()), theirs[c]["down"][rank].get<std::vector<int>>())
          << name << " channel " << c << " rank " << rank;
    }
  }
}

void compareNvls(const Channels& ours, const Json& theirs, const std::string& name) {
  for (size_t tree = 0; tree < theirs.size(); ++tree) {
    for (size_t rank = 0; rank < theirs[tree].size(); ++rank) {
      const Json& their = theirs[tree][rank];
      EXPECT_EQ(ours.nvlsHeads, their["nHeads"].get<int>()) << name;
      const NvlsLinks links = ours.nvls.empty() ? NvlsLinks{} : ours.nvls[tree][rank];
      EXPECT_EQ(links.head, their["headRank"].get<int>()) << name << " rank " << rank;
      EXPECT_EQ(links.treeUp, their["treeUp"].get<int>()) << name << " rank " << rank;
      if (ours.nodes > 1 && links.head >= 0) {
        EXPECT_EQ(links.treeDown[0], their["treeDown"][1].get<int>()) << name << " rank " << rank;
      }
    }
  }
}

TEST(Channels, AreTheReferencesForItsOwnGraphs) {
  int runs = 0;
  for (const std::string& file : topo::test::filesOf("/expected", ".json")) {
    const Json facts = Json::parse(std::ifstream(file + ".json"));
    if (!facts.contains("runs")) continue;
    int sm = 0;
    for (const auto& [name, run] : facts["runs"].items()) {
      if (sm == 0 && run.contains("system")) sm = run["system"]["gpus"][0]["sm"];
    }
    for (const auto& [name, run] : facts["runs"].items()) {
      const Json& final = run["final"];
      const auto nodes = nodesOf(firstNode(run, sm), run["ranks"]);
      const auto channels = connectNodes(nodes, limitsOf(run));
      const std::string place = file.substr(file.rfind('/') + 1) + " " + name;
      ASSERT_TRUE(channels) << place << ": " << channels.error().text();
      EXPECT_EQ(channels->count(), final["nChannels"].get<int>()) << place;
      EXPECT_EQ(channels->nodes, final["nNodes"].get<int>()) << place;
      EXPECT_EQ(channels->rings, final["ringsFromRank0"].get<std::vector<std::vector<int32_t>>>()) << place;
      compareTrees(*channels, final["trees"], place);
      if (final.contains("nvls") && run["topoFlags"]["nvlsSupport"].get<int>() != 0) compareNvls(*channels, final["nvls"], place);
      ++runs;
    }
  }
  std::printf("%d runs compared; %s\n", runs,
              topo::test::hasDataSet() ? "with the data set" : "the data set is absent, its runs were skipped");
  EXPECT_GE(runs, 20);
}

/// Every tree spans all ranks without a cycle, and `down` mirrors `up`.
void expectSpanningTree(const std::vector<TreeLinks>& tree) {
  int roots = 0;
  std::set<std::pair<int, int>> fromBelow;
  std::set<std::pair<int, int>> fromAbove;
  for (size_t rank = 0; rank < tree.size(); ++rank) {
    const int own = static_cast<int>(rank);
    if (tree[rank].up < 0) ++roots;
    else fromBelow.emplace(tree[rank].up, own);
    for (const int child : tree[rank].down) {
      if (child >= 0) fromAbove.emplace(own, child);
    }
    int steps = 0;
    for (int at = own; tree[static_cast<size_t>(at)].up >= 0; at = tree[static_cast<size_t>(at)].up)
      ASSERT_LE(++steps, static_cast<int>(tree.size()));
  }
  EXPECT_EQ(roots, 1);
  EXPECT_EQ(fromAbove, fromBelow);
}

NodeGraphs madeUp(int ranks, int channels, topo::Pattern pattern, topo::CrossNic crossNic) {
  NodeGraphs node;
  node.ranks.resize(static_cast<size_t>(ranks));
  std::iota(node.ranks.begin(), node.ranks.end(), 0);
  for (int c = 0; c < channels; ++c) {
    std::vector<int32_t> order = node.ranks;
    std::rotate(order.begin(), order.begin() + c % ranks, order.end());
    node.trees.push_back(order);
    if (c % 2 == 1) std::reverse(order.begin(), order.end());
    node.rings.push_back(order);
  }
  node.treePattern = pattern;
  node.crossNic = crossNic;
  node.ringGBpsIntra = 20;
  node.sm = 80;
  return node;
}

TEST(Channels, AreValidAndBalancedForManyNodes) {
  for (const auto pattern : {topo::Pattern::BalancedTree, topo::Pattern::SplitTree, topo::Pattern::Tree}) {
    for (const auto crossNic : {topo::CrossNic::Never, topo::CrossNic::InPairs}) {
      for (int nodes = 1; nodes <= 17; ++nodes) {
        const auto made = connectNodes(nodesOf(madeUp(4, 4, pattern, crossNic), 4 * nodes), {});
        ASSERT_TRUE(made) << made.error().text();
        EXPECT_EQ(made->count(), 8);
        for (std::vector<int32_t> ring : made->rings) {
          EXPECT_EQ(ring[0], 0);
          std::sort(ring.begin(), ring.end());
          for (size_t i = 0; i < ring.size(); ++i) ASSERT_EQ(ring[i], static_cast<int32_t>(i));
        }
        for (const auto& tree : made->trees) expectSpanningTree(tree);
        // Both trees together give no node more than two links up and four down: bandwidth is shared evenly.
        for (int c = 0; c < 4; ++c) {
          for (int node = 0; node < nodes; ++node) {
            int down = 0;
            for (const int tree : {c, c + 4}) {
              for (int rank = 4 * node; rank < 4 * node + 4; ++rank) {
                for (const int child : made->trees[static_cast<size_t>(tree)][static_cast<size_t>(rank)].down)
                  down += child >= 0 && child / 4 != node ? 1 : 0;
              }
            }
            EXPECT_LE(down, 3) << nodes << " nodes, node " << node;
          }
        }
      }
    }
  }
}

TEST(Channels, KeepRingsOnTheirRailsWhereTheyComeInPairs) {
  const auto made = connectNodes(nodesOf(madeUp(4, 2, topo::Pattern::Tree, topo::CrossNic::InPairs), 16), {});
  ASSERT_TRUE(made);
  // Node 0 ends channel 0 at rank 3; the odd node 1 goes the other way, so that it begins with what stands for rank 3's rail.
  EXPECT_EQ(made->rings[0], (std::vector<int32_t>{0, 1, 2, 3, 4, 7, 6, 5, 8, 9, 10, 11, 12, 15, 14, 13}));
}

TEST(Channels, CopyAndCutToTheLimits) {
  const NodeGraphs node = madeUp(4, 3, topo::Pattern::Tree, topo::CrossNic::Never);
  const auto plain = connectNodes(std::span(&node, 1), {});
  const auto cut = connectNodes(std::span(&node, 1), {.most = 2});
  const auto copied = connectNodes(std::span(&node, 1), {.fewest = 16});
  ASSERT_TRUE(plain && cut && copied);
  EXPECT_EQ(plain->count(), 6);
  EXPECT_EQ(cut->count(), 2);
  EXPECT_EQ(copied->count(), 16);
  for (size_t c = 0; c < 16; ++c) EXPECT_EQ(copied->rings[c], plain->rings[c < 6 ? c : (c - 6) % 6]);
}

TEST(Channels, NodesThatAreAlikeHaveOneDigest) {
  const NodeGraphs node = madeUp(4, 3, topo::Pattern::Tree, topo::CrossNic::Never);
  NodeGraphs other = renumbered(node, {8, 9, 12, 13});
  EXPECT_EQ(digest(node), digest(other));
  EXPECT_EQ(renumbered(other, {0, 1, 2, 3}), node);
  std::swap(other.rings[1][0], other.rings[1][1]);
  EXPECT_NE(digest(node), digest(other));
}

TEST(Channels, RefuseNodesThatDoNotFit) {
  const NodeGraphs node = madeUp(4, 2, topo::Pattern::Tree, topo::CrossNic::Never);
  const auto refusal = [](std::vector<NodeGraphs> nodes) {
    const auto made = connectNodes(nodes, {});
    return made ? std::string() : made.error().text();
  };
  EXPECT_NE(refusal({}).find("no nodes"), std::string::npos);
  EXPECT_NE(refusal({node, node}).find("each once"), std::string::npos);
  NodeGraphs broken = node;
  broken.trees[1][2] = broken.trees[1][1];
  EXPECT_NE(refusal({broken}).find("does not name its 4 ranks once each"), std::string::npos);
  broken = node;
  broken.rings.clear();
  EXPECT_NE(refusal({broken}).find("has no channels"), std::string::npos);
}

}  // namespace
}  // namespace tutti::connect::channels_test
