#include "explain/fabric.h"

#include "connect/layout.h"

namespace tutti::tool {
namespace {

tune::Generation generationOf(int sm) {
  if (sm >= 100) return tune::Generation::Blackwell;
  if (sm >= 90) return tune::Generation::Hopper;
  return sm >= 80 ? tune::Generation::Ampere : tune::Generation::Volta;
}

/// A set's channels, after connecting has laid them twice or cut them off: all together they are as fast as those that were found.
tune::Lines linesOf(const topo::ChannelSet& set, int32_t channels) {
  const double share = channels == 0 ? 0 : static_cast<double>(std::min(set.count(), channels)) / channels;
  tune::Lines lines;
  lines.channels = channels;
  lines.intraGBps = set.intraGBps * share;
  lines.interGBps = set.interGBps * share;
  lines.link = set.typeIntra <= topo::PathType::Nvb ? tune::LinkKind::NvLink : tune::LinkKind::Pci;
  lines.netUs = set.latencyInterUs;
  lines.oneChain = set.pattern == topo::Pattern::Tree;
  return lines;
}

}  // namespace

Result<tune::Fabric> fabricOf(const topo::Document& machine, const FactsOptions& facts, const GraphFactsOptions& graphs) {
  const auto view = viewOf(machine, facts);
  if (!view) return tl::unexpected(view.error());
  const auto found = graphsOf(*view, facts, graphs);
  if (!found) return tl::unexpected(found.error());
  const auto nodes = nodesOf(machine, facts, graphs, *found);
  if (!nodes) return tl::unexpected(nodes.error());
  const auto channels =
      connect::connectNodes(*nodes, {.fewest = graphs.minChannels, .most = graphs.maxChannels, .collnet = facts.isCollNet});
  if (!channels) return tl::unexpected(channels.error());

  const topo::ChannelSet& rings = (*found)[topo::GraphKind::Ring];
  tune::Fabric fabric;
  fabric.ranks = channels->ranks;
  fabric.nodes = channels->nodes;
  fabric.generation = generationOf(topo::oldestSm(view->system));
  fabric.rings = linesOf(rings, channels->count());
  fabric.trees = linesOf((*found)[topo::GraphKind::Tree], channels->count());
  fabric.ringOrders = connect::Layout::ofChannels(*channels, *nodes).rings();
  fabric.keepsLines = rings.typeIntra <= topo::PathType::Nvb;
  return fabric;
}

}  // namespace tutti::tool
