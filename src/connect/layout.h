// The neighbours of every rank, the same on every channel: a ring and two trees.
//
// Owner: the communicator (one Layout each); immutable after it is built, so any thread may read it.
// 1. Views point into the Layout and live no longer than it.
// 2. Ranks of a node stand beside each other in the ring's order.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "algo/layout.h"

namespace tutti::connect {

struct Channels;
struct NodeGraphs;

/// Where a rank runs; numbers of any kind, that tell places apart. Those of a NUMA node count within its host, of a cache within the NUMA
/// node.
struct RankPlace {
  int32_t host = 0;
  int32_t numa = -1;
  int32_t cache = -1;
  auto operator<=>(const RankPlace&) const = default;
};

/// The NUMA nodes of a host, given in the order of their first ranks, in that in which a ring should pass them: a permutation.
using NumaOrder = std::function<std::vector<int32_t>(int32_t host, std::span<const int32_t> nodes)>;

class Layout {
 public:
  /// `order` is the ring order of all ranks, a permutation of 0 … n-1; the trees are built over positions of the same order.
  /// Every `localRanks` ranks of the order are a node. 0, or what does not divide the number of ranks: all are on one node.
  explicit Layout(std::vector<int32_t> order, int32_t localRanks = 0);
  /// Ranks in their natural order.
  static Layout natural(int32_t ranks, int32_t localRanks = 0);
  /// Those of a host beside each other, hosts in the order of their first ranks; `hostOf[r]` is the host of rank r. Hosts with the same
  /// number of ranks are nodes.
  static Layout byHost(const std::vector<int32_t>& hostOf);
  /// The same, and of a host's ranks those with the same NUMA node, of these those with the same cache. NUMA nodes of a host come in the
  /// order of their first ranks, or as `inOrder` has them.
  static Layout byPlace(const std::vector<RankPlace>& places, const NumaOrder& inOrder = {});
  /// The first ring of `channels` and the two trees of its first channel (on a single node, of its first two); `nodes`: what they were
  /// connected from.
  static Layout ofChannels(const Channels& channels, std::span<const NodeGraphs> nodes);

  int32_t ranks() const { return static_cast<int32_t>(order_.size()); }
  int32_t nodes() const { return ranks() / localRanks_; }

  /// What `rank` sees; `root` is passed through to the algorithms that have one.
  algo::LayoutView view(Rank rank, Rank root = Rank(0)) const;

 private:
  using Trees = std::array<std::vector<algo::Tree>, algo::kTrees>;

  std::vector<int32_t> order_;     // position -> rank
  std::vector<int32_t> position_;  // rank -> position
  int32_t localRanks_;             // of every node
  Trees trees_;                    // by rank; empty: double binary trees over positions
};

/// A node's neighbours in one tree of a double binary tree; −1 where there is none. Before the second tree is mirrored or shifted, nodes of
/// the lower child's side have smaller numbers than the node, those of the upper child's side larger ones.
struct TreeNode {
  int32_t parent = -1;
  int32_t lower = -1;
  int32_t upper = -1;
  bool isLower = false;  ///< It is its parent's lower child.
};
TreeNode nodeOfDoubleTree(int32_t tree, int32_t index, int32_t size);

/// The place of node `index` in the tree number `tree` (0 or 1) of a double binary tree over `size` nodes.
/// An inner node of one tree is a leaf of the other, but for at most one node.
algo::Tree doubleBinaryTree(int32_t tree, int32_t index, int32_t size);

}  // namespace tutti::connect
