// The neighbours of every rank: a ring and two trees for each track. Channels take the tracks in turn: channel c runs on track c mod
// tracks().
//
// Owner: the communicator (one Layout each); immutable after it is built, so any thread may read it.
// 1. Views point into the Layout and live no longer than it.
// 2. Ranks of a node stand beside each other in every ring's order; all tracks have the same nodes.
// 3. A layout has one track unless the machine has links, or its hosts have nets, that one ring leaves idle.
// 4. Nets are devices of the network that the ranks of a host use; what is said of other hosts' nets is not for this host to open.
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

/// The devices by which what a rank exchanges with other hosts comes in and goes out.
struct NetUse {
  int32_t in = 0;
  int32_t out = 0;
  bool operator==(const NetUse&) const = default;
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
  /// A track for each of `orders`, at least one, all of the same ranks; trees as above.
  static Layout ofRings(std::vector<std::vector<int32_t>> orders, int32_t localRanks = 0);
  /// The rings of `channels`, each with the trees of its channel (on a single node, of its own and of the next one); `nodes`: what they
  /// were connected from. Where all rings are one, whatever rank they begin with, that is the only track. Where the channels are a sequence
  /// that repeats as a whole (A B A B), one period of it is the tracks; a ring that comes again otherwise (A B A C) stays one each time,
  /// because the search gave it that share of the channels.
  static Layout ofChannels(const Channels& channels, std::span<const NodeGraphs> nodes);
  /// The rings of `channels` that enter or leave some node by other nets than the rings before them; trees as of ofRings().
  static Layout ofNets(const Channels& channels, std::span<const NodeGraphs> nodes);

  int32_t ranks() const { return static_cast<int32_t>(tracks_.front().order.size()); }
  int32_t nodes() const { return ranks() / localRanks_; }
  int32_t tracks() const { return static_cast<int32_t>(tracks_.size()); }

  /// By which devices a rank exchanges what belongs to a channel; device 0 where nobody has said.
  NetUse netsOf(Rank rank, ChannelId channel) const;
  /// The device by which `from` sends to `to` on another host, or, if not `sends`, that by which `to` receives: the ring's where they
  /// follow each other in it, and 0 elsewhere, because nets of different numbers may be apart.
  int32_t netBetween(Rank from, Rank to, ChannelId channel, bool sends) const;
  /// There are several tracks, and nets for them: what is large enough gains from channels on all.
  bool spreadsOverNets() const;

  /// Of each track, in ring order.
  std::vector<std::vector<int32_t>> rings() const;

  /// What `rank` sees on a channel; `root` is passed through to the algorithms that have one.
  algo::LayoutView view(Rank rank, Rank root = Rank(0), ChannelId channel = ChannelId(0)) const;

  /// GB/s that rings, or trees, carry on so many channels that share the data alike: the slowest track decides. 0: not known, or all GPUs
  /// are alike and their links belong to the constants of the machine.
  double ringGBps(int32_t channels) const { return shared(ringGBps_, channels); }
  double treeGBps(int32_t channels) const { return shared(treeGBps_, channels); }

 private:
  using Trees = std::array<std::vector<algo::Tree>, algo::kTrees>;
  struct Track {
    std::vector<int32_t> order;     // position -> rank
    std::vector<int32_t> position;  // rank -> position
    Trees trees;                    // by rank; empty: double binary trees over positions
    std::vector<NetUse> nets;       // by rank; empty: nobody has said
  };
  static Track trackOf(std::vector<int32_t> order);
  static Layout ofTracks(std::vector<Track> tracks, std::span<const NodeGraphs> nodes);
  double shared(double trackGBps, int32_t channels) const;

  std::vector<Track> tracks_;  // at least one
  int32_t localRanks_ = 0;     // of every node
  double ringGBps_ = 0;        // of a track
  double treeGBps_ = 0;
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
