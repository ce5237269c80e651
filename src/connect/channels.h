// The channels of a communicator over all its nodes: whole rings, double binary trees, NVLS and CollNet heads.
//
// Pure functions of plain values: all ranks that hold the same NodeGraphs come to the same Channels. Any thread.
// 1. A node is what one channel search covers: the GPUs of a host, of a part of it, or of a multi-node NVLink clique.
// 2. Every ring passes every rank once; every tree spans all ranks. connectNodes() checks what the nodes bring, and that each ring has all
//    ranks.
// 3. Channels come in two halves: c and c + half have the same ring and the two trees of a double binary tree; copies follow them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "connect/layout.h"
#include "core/status.h"
#include "topo/search.h"

namespace tutti::connect {

/// What one node brings: its channel sets in ranks. Ranks of a node agree on it.
struct NodeGraphs {
  std::vector<int32_t> ranks;                    ///< Rising.
  std::vector<std::vector<int32_t>> rings;       ///< By channel, in ring order.
  std::vector<std::vector<int32_t>> trees;       ///< By channel, the chain from its head.
  std::vector<std::vector<int32_t>> chains;      ///< CollNet chains by channel, as trees.
  std::vector<std::vector<int32_t>> directs;     ///< CollNet direct: by channel its head, then the others.
  std::vector<int32_t> nvlsHeads;                ///< No head twice.
  std::vector<std::vector<NetUse>> nets;         ///< By channel of the rings, then by place in `ranks`; empty: nobody has said.
  topo::Pattern treePattern = topo::Pattern::BalancedTree;
  topo::CrossNic crossNic = topo::CrossNic::Never;  ///< Of the rings.
  float ringGBpsIntra = 0;  ///< Of each channel.
  float treeGBpsIntra = 0;
  float chainGBpsIntra = 0;
  float chainGBpsInter = 0;
  int32_t sm = 0;  ///< Of the oldest GPU.
  bool operator==(const NodeGraphs&) const = default;
};

NodeGraphs nodeGraphs(const topo::System& system, const topo::Graphs& graphs);

/// The same node with other ranks: the i-th rank becomes the i-th of `ranks`. A rank need not send its graphs where the digests agree.
NodeGraphs renumbered(const NodeGraphs& node, std::vector<int32_t> ranks);
/// A hash of everything but which ranks they are.
uint64_t digest(const NodeGraphs& node);

struct ChannelLimits {
  int32_t fewest = 0;     ///< NCCL_MIN_NCHANNELS or minCTAs: channels are copied up to it. 0: as found.
  int32_t most = topo::kMostChannels;  ///< NCCL_MAX_NCHANNELS or maxCTAs: only the first ones are kept. Applied before `fewest`.
  bool collnet = false;
  int32_t collnetNodes = 2;  ///< NCCL_COLLNET_NODE_THRESHOLD: with fewer nodes CollNet is off.
};
inline constexpr int32_t kTreeArity = 3;

struct TreeLinks {
  int32_t up = -1;
  std::array<int32_t, kTreeArity> down = {-1, -1, -1};
  bool operator==(const TreeLinks&) const = default;
};

/// A rank's part in NVLS over nodes, in one of the two trees between the heads of the same number.
struct NvlsLinks {
  int32_t head = -1;  ///< Its number among the node's heads; −1: it is none.
  int32_t treeUp = -1;
  std::array<int32_t, 2> treeDown = {-1, -1};
};

struct Channels {
  int32_t ranks = 0;
  int32_t nodes = 0;
  std::vector<std::vector<int32_t>> rings;      ///< By channel, from rank 0 on.
  std::vector<std::vector<NetUse>> nets;        ///< By channel of the first half, then rank; empty unless all nodes have said.
  std::vector<std::vector<TreeLinks>> trees;    ///< By channel, then rank.
  std::vector<std::vector<TreeLinks>> chains;   ///< CollNet chains by channel, then rank; `up` of a head is the number of ranks.
  int32_t nvlsHeads = 0;
  std::vector<std::vector<NvlsLinks>> nvls;     ///< By tree (0 for even channels, 1 for odd ones), then rank.
  std::vector<std::vector<int32_t>> directHeads;  ///< CollNet direct: by node, its heads.
  topo::Pattern treePattern = topo::Pattern::BalancedTree;  ///< The simplest that a node has.
  bool collnet = false;
  int32_t distinct = 0;  ///< Channels before any were copied or left out: the two halves of invariant 3.

  int32_t count() const { return static_cast<int32_t>(rings.size()); }
};

/// Error: no node, nodes that share a rank or leave one out, a node without rings, or rings that do not close.
Result<Channels> connectNodes(std::span<const NodeGraphs> nodes, const ChannelLimits& limits);

}  // namespace tutti::connect
