#include "connect/channels.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tutti::connect {

namespace {

std::vector<std::vector<int32_t>> ordersOf(const topo::System& system, const topo::ChannelSet& set) {
  std::vector<std::vector<int32_t>> orders;
  for (const topo::Channel& channel : set.channels) {
    std::vector<int32_t>& order = orders.emplace_back();
    for (const topo::NodeId gpu : channel.gpus) order.push_back(system.at(gpu).gpu.rank);
  }
  return orders;
}

class Connector {
 public:
  Connector(std::span<const NodeGraphs> nodes, const ChannelLimits& limits) : nodes_(nodes), limits_(limits) {}

  Result<Channels> run() {
    if (Status status = checkNodes(); !status.ok()) return tl::unexpected(std::move(status));
    half_ = topo::kMostChannels / 2;
    for (const NodeGraphs& node : nodes_) half_ = std::min<size_t>({half_, node.rings.size(), node.trees.size()});
    if (half_ == 0) return fail(Code::InvalidArgument, "a node has no channels");
    if (Status status = connectRings(); !status.ok()) return tl::unexpected(std::move(status));
    connectNets();
    connectTrees();
    made_.distinct = made_.count();
    made_.collnet = limits_.collnet && static_cast<int32_t>(nodes_.size()) >= limits_.collnetNodes && everyNodeHas(&NodeGraphs::chains);
    if (made_.collnet) connectCollnet();
    addCopies();
    connectNvls();
    return std::move(made_);
  }

 private:
  Status checkNodes() {
    if (nodes_.empty()) return error(Code::InvalidArgument, "no nodes to connect");
    std::vector<int32_t> all;
    for (const NodeGraphs& node : nodes_) all.insert(all.end(), node.ranks.begin(), node.ranks.end());
    std::sort(all.begin(), all.end());
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] != static_cast<int32_t>(i))
        return error(Code::InvalidArgument, "the nodes' ranks are not 0 to {}, each once: {} is missing or given twice", all.size() - 1, i);
    }
    for (const NodeGraphs& node : nodes_) {
      for (const auto& uses : node.nets) {
        if (uses.size() != node.ranks.size())
          return error(Code::InvalidArgument, "a channel of the node of rank {} has nets of {} ranks; it has {}", node.ranks[0],
                       uses.size(), node.ranks.size());
      }
      for (const auto* orders : {&node.rings, &node.trees, &node.chains}) {
        for (std::vector<int32_t> order : *orders) {
          std::sort(order.begin(), order.end());
          if (order != node.ranks)
            return error(Code::InvalidArgument, "a channel of the node of rank {} does not name its {} ranks once each", node.ranks[0],
                         node.ranks.size());
        }
      }
    }
    made_.ranks = static_cast<int32_t>(all.size());
    made_.nodes = static_cast<int32_t>(nodes_.size());
    for (const NodeGraphs& node : nodes_) made_.treePattern = std::max(made_.treePattern, node.treePattern);
    return {};
  }
  bool everyNodeHas(std::vector<std::vector<int32_t>> NodeGraphs::*orders) const {
    return std::all_of(nodes_.begin(), nodes_.end(), [&](const NodeGraphs& node) { return !(node.*orders).empty(); });
  }

  // Where channels come in pairs over two rails, odd nodes take each other's, so that a ring stays on its rail.
  size_t channelOf(size_t node, size_t channel) const {
    const bool swapped = nodes_[node].crossNic == topo::CrossNic::InPairs && half_ % 2 == 0 && node % 2 == 1;
    return swapped ? channel ^ 1 : channel;
  }
  const std::vector<int32_t>& ringOf(size_t node, size_t channel) const { return nodes_[node].rings[channelOf(node, channel)]; }

  void connectNets() {
    if (std::any_of(nodes_.begin(), nodes_.end(), [](const NodeGraphs& node) { return node.nets.size() != node.rings.size(); })) return;
    for (size_t channel = 0; channel < half_; ++channel) {
      std::vector<NetUse>& uses = made_.nets.emplace_back(static_cast<size_t>(made_.ranks));
      for (size_t node = 0; node < nodes_.size(); ++node) {
        const std::vector<NetUse>& own = nodes_[node].nets[channelOf(node, channel)];
        for (size_t i = 0; i < own.size(); ++i) uses[static_cast<size_t>(nodes_[node].ranks[i])] = own[i];
      }
    }
  }

  Status connectRings() {
    for (size_t channel = 0; channel < half_; ++channel) {
      std::vector<int32_t> ring;
      for (size_t node = 0; node < nodes_.size(); ++node)
        ring.insert(ring.end(), ringOf(node, channel).begin(), ringOf(node, channel).end());
      const auto first = std::find(ring.begin(), ring.end(), 0);
      if (first == ring.end() || ring.size() != static_cast<size_t>(made_.ranks))
        return error(Code::InternalError, "ring {} passes {} of {} ranks", channel, ring.size(), made_.ranks);
      std::rotate(ring.begin(), first, ring.end());
      made_.rings.push_back(std::move(ring));
    }
    const std::vector<std::vector<int32_t>> firstHalf = made_.rings;
    made_.rings.insert(made_.rings.end(), firstHalf.begin(), firstHalf.end());
    return {};
  }

  // The ranks of a node that talk to its parent and to its lower and upper child in a tree of nodes.
  struct Ends {
    int32_t toParent;
    int32_t toLower;
    int32_t toUpper;
  };
  Ends endsOf(size_t node, size_t channel) const {
    const std::vector<int32_t>& chain = nodes_[node].trees[channel];
    const int32_t second = chain[chain.size() > 1 ? 1 : 0];
    switch (nodes_[node].treePattern) {
      case topo::Pattern::BalancedTree: return {chain[0], second, chain[0]};
      case topo::Pattern::SplitTree: return {chain[0], second, second};
      default: return {chain[0], chain[0], chain[0]};
    }
  }

  static void addDown(TreeLinks& links, int32_t rank) { *std::find(links.down.begin(), links.down.end(), -1) = rank; }

  void connectTrees() {
    made_.trees.assign(2 * half_, std::vector<TreeLinks>(static_cast<size_t>(made_.ranks)));
    for (size_t channel = 0; channel < 2 * half_; ++channel) {
      const size_t own = channel % half_;
      std::vector<TreeLinks>& links = made_.trees[channel];
      for (const NodeGraphs& node : nodes_) linkChain(node.trees[own], links);
      for (size_t node = 0; node < nodes_.size(); ++node) {
        const TreeNode place = nodeOfDoubleTree(channel < half_ ? 0 : 1, static_cast<int32_t>(node), made_.nodes);
        const Ends ends = endsOf(node, own);
        if (place.parent >= 0) {
          const Ends above = endsOf(static_cast<size_t>(place.parent), own);
          links[static_cast<size_t>(ends.toParent)].up = place.isLower ? above.toLower : above.toUpper;
        }
        if (place.lower >= 0) addDown(links[static_cast<size_t>(ends.toLower)], endsOf(static_cast<size_t>(place.lower), own).toParent);
        if (place.upper >= 0) addDown(links[static_cast<size_t>(ends.toUpper)], endsOf(static_cast<size_t>(place.upper), own).toParent);
      }
    }
  }

  static void linkChain(const std::vector<int32_t>& chain, std::vector<TreeLinks>& links) {
    for (size_t i = 0; i < chain.size(); ++i) {
      TreeLinks& own = links[static_cast<size_t>(chain[i])];
      if (i > 0) own.up = chain[i - 1];
      if (i + 1 < chain.size()) own.down[0] = chain[i + 1];
    }
  }

  void connectCollnet() {
    made_.chains.assign(2 * half_, std::vector<TreeLinks>(static_cast<size_t>(made_.ranks)));
    for (size_t channel = 0; channel < 2 * half_; ++channel) {
      for (const NodeGraphs& node : nodes_) {
        const std::vector<int32_t>& chain = node.chains[channel % half_ % node.chains.size()];
        linkChain(chain, made_.chains[channel]);
        made_.chains[channel][static_cast<size_t>(chain[0])].up = made_.ranks;
      }
    }
    for (const NodeGraphs& node : nodes_) {
      std::vector<int32_t>& heads = made_.directHeads.emplace_back();
      for (const auto& order : node.directs) {
        if (std::find(heads.begin(), heads.end(), order[0]) == heads.end()) heads.push_back(order[0]);
      }
    }
  }

  // Channel i + (number so far) is channel i again, up to `wanted` of them.
  void copyUpTo(int32_t wanted) {
    const size_t end = static_cast<size_t>(std::min(wanted, topo::kMostChannels));
    const size_t start = made_.rings.size();
    for (size_t c = start; c < end; ++c) {
      made_.rings.push_back(made_.rings[c - start]);
      made_.trees.push_back(made_.trees[c - start]);
      if (made_.collnet) made_.chains.push_back(made_.chains[c - start]);
    }
  }

  void addCopies() {
    float ringSpeed = nodes_[0].ringGBpsIntra;
    float inside = nodes_[0].chainGBpsIntra;
    float outside = nodes_[0].chainGBpsInter;
    int32_t oldest = nodes_[0].sm;
    for (const NodeGraphs& node : nodes_) {
      ringSpeed = std::min(ringSpeed, node.ringGBpsIntra);
      inside = std::min(inside, node.chainGBpsIntra);
      outside = std::min(outside, node.chainGBpsInter);
      oldest = std::min(oldest, node.sm);
    }
    keepFirst(topo::kMostChannels);
    // CollNet leaves bandwidth inside the nodes that more channels can use; fast GPUs need more blocks than a few channels have.
    if (made_.collnet && inside > outside && made_.ranks > made_.nodes) copyUpTo(made_.count() + made_.count() / 2);
    if (oldest >= 90 && made_.nodes > 1 && ringSpeed > 45.0F && made_.count() < 16) copyUpTo(2 * made_.count());
    keepFirst(limits_.most);
    copyUpTo(limits_.fewest);
  }
  void keepFirst(int32_t most) {
    const size_t kept = static_cast<size_t>(std::clamp(most, int32_t{1}, made_.count()));
    made_.rings.resize(kept);
    made_.trees.resize(kept);
    if (made_.collnet) made_.chains.resize(kept);
  }

  void connectNvls() {
    size_t heads = nodes_[0].nvlsHeads.size();
    for (const NodeGraphs& node : nodes_) heads = std::min(heads, node.nvlsHeads.size());
    made_.nvlsHeads = static_cast<int32_t>(heads);
    if (heads == 0) return;
    made_.nvls.assign(2, std::vector<NvlsLinks>(static_cast<size_t>(made_.ranks)));
    for (int32_t tree = 0; tree < 2; ++tree) {
      for (size_t node = 0; node < nodes_.size(); ++node) {
        const TreeNode place = nodeOfDoubleTree(tree, static_cast<int32_t>(node), made_.nodes);
        for (size_t head = 0; head < heads; ++head) {
          const auto headOf = [&](int32_t other) { return nodes_[static_cast<size_t>(other)].nvlsHeads[head]; };
          NvlsLinks& links = made_.nvls[static_cast<size_t>(tree)][static_cast<size_t>(nodes_[node].nvlsHeads[head])];
          links.head = static_cast<int32_t>(head);
          if (place.parent >= 0) links.treeUp = headOf(place.parent);
          size_t down = 0;
          for (const int32_t child : {place.lower, place.upper}) {
            if (child >= 0) links.treeDown[down++] = headOf(child);
          }
        }
      }
    }
  }

  std::span<const NodeGraphs> nodes_;
  const ChannelLimits& limits_;
  size_t half_ = 0;
  Channels made_;
};

class Digest {
 public:
  void add(uint64_t word) {
    hash_ = (hash_ ^ word) * 0x9e3779b97f4a7c15ULL;
    hash_ ^= hash_ >> 29;
  }
  void add(float number) { add(static_cast<uint64_t>(std::llround(static_cast<double>(number) * 1000))); }
  void add(const std::vector<int32_t>& order, const std::vector<int32_t>& ranks) {
    add(static_cast<uint64_t>(order.size()));
    for (const int32_t rank : order) add(static_cast<uint64_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin()));
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0x243f6a8885a308d3ULL;
};

}  // namespace

NodeGraphs nodeGraphs(const topo::System& system, const topo::Graphs& graphs) {
  NodeGraphs node;
  for (const topo::NodeId gpu : system.all(topo::NodeKind::Gpu)) node.ranks.push_back(system.at(gpu).gpu.rank);
  std::sort(node.ranks.begin(), node.ranks.end());
  const topo::ChannelSet& ring = graphs[topo::GraphKind::Ring];
  const topo::ChannelSet& chain = graphs[topo::GraphKind::CollnetChain];
  node.rings = ordersOf(system, ring);
  node.trees = ordersOf(system, graphs[topo::GraphKind::Tree]);
  node.chains = ordersOf(system, chain);
  node.directs = ordersOf(system, graphs[topo::GraphKind::CollnetDirect]);
  for (const topo::Channel& channel : graphs[topo::GraphKind::Nvls].channels) {
    const int32_t head = system.at(channel.gpus[0]).gpu.rank;
    if (std::find(node.nvlsHeads.begin(), node.nvlsHeads.end(), head) == node.nvlsHeads.end()) node.nvlsHeads.push_back(head);
  }
  node.treePattern = graphs[topo::GraphKind::Tree].pattern;
  node.crossNic = ring.crossNic;
  node.ringGBpsIntra = ring.intraGBps;
  node.treeGBpsIntra = graphs[topo::GraphKind::Tree].intraGBps;
  node.chainGBpsIntra = chain.intraGBps;
  node.chainGBpsInter = chain.interGBps;
  node.sm = topo::oldestSm(system);
  return node;
}

NodeGraphs renumbered(const NodeGraphs& node, std::vector<int32_t> ranks) {
  NodeGraphs made = node;
  const auto change = [&](std::vector<int32_t>& order) {
    for (int32_t& rank : order)
      rank = ranks[static_cast<size_t>(std::find(node.ranks.begin(), node.ranks.end(), rank) - node.ranks.begin())];
  };
  for (auto* orders : {&made.rings, &made.trees, &made.chains, &made.directs}) std::for_each(orders->begin(), orders->end(), change);
  change(made.nvlsHeads);
  made.ranks = std::move(ranks);
  return made;
}

uint64_t digest(const NodeGraphs& node) {
  Digest sum;
  for (const auto* orders : {&node.rings, &node.trees, &node.chains, &node.directs}) {
    sum.add(static_cast<uint64_t>(orders->size()));
    for (const auto& order : *orders) sum.add(order, node.ranks);
  }
  sum.add(node.nvlsHeads, node.ranks);
  for (const std::vector<NetUse>& channel : node.nets)
    for (const NetUse& use : channel) sum.add(static_cast<uint64_t>(use.in) << 32 | static_cast<uint32_t>(use.out));
  for (const float number : {node.ringGBpsIntra, node.treeGBpsIntra, node.chainGBpsIntra, node.chainGBpsInter}) sum.add(number);
  for (const int number : {static_cast<int>(node.treePattern), static_cast<int>(node.crossNic), static_cast<int>(node.sm),
                           static_cast<int>(node.ranks.size())}) {
    sum.add(static_cast<uint64_t>(number));
  }
  return sum.value();
}

Result<Channels> connectNodes(std::span<const NodeGraphs> nodes, const ChannelLimits& limits) { return Connector(nodes, limits).run(); }

}  // namespace tutti::connect
