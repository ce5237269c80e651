#include "machine/host_layout.h"

#include <utility>

#include "core/format.h"
#include "topo/graph_xml.h"

namespace tutti::machine {
namespace {

topo::System ranksAsGpus(int32_t ranks, std::span<const int32_t> nets) {
  topo::System system;
  system.hostHashes = {0};
  system.ranks = ranks;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const topo::NodeId node = system.addNode(topo::NodeKind::Gpu, topo::makeNodeId(0, static_cast<uint64_t>(rank)));
    system.at(node).gpu = {.dev = rank, .rank = rank, .sm = 0, .gdr = false, .gcn = {}};
  }
  for (const int32_t dev : nets) {
    const topo::NodeId node = system.addNode(topo::NodeKind::Net, topo::makeNodeId(0, static_cast<uint64_t>(dev)));
    system.at(node).net.dev = dev;
  }
  return system;
}

Result<connect::NodeGraphs> readRings(const topo::Document& graphs, const topo::System& system, topo::Graphs& found) {
  auto read = topo::readGraphs(graphs, system, {});
  if (!read) return tl::unexpected(std::move(read).error());
  found = *std::move(read);
  connect::NodeGraphs node = connect::nodeGraphs(system, found);
  if (node.rings.empty()) return fail(Code::InvalidUsage, "{}: there is no graph 0 with channels, which are the rings", graphs.file);
  if (node.trees.empty()) node.trees = node.rings;
  return node;
}

/// Whether its rings are of so many GPUs; what is no ring is left to the reader of the file.
bool isOf(const topo::Document& graphs, int32_t ranks) {
  for (const topo::Element& graph : graphs.root.children) {
    const std::string* const id = graph.find("id");
    if (id == nullptr || *id != "0" || graph.children.empty()) continue;
    int32_t gpus = 0;
    for (const topo::Element& stop : graph.children.front().children) gpus += stop.name == "gpu" ? 1 : 0;
    return gpus == ranks;
  }
  return true;
}

}  // namespace

Result<std::optional<connect::Layout>> findHostLayout(const topo::Document& graphs, int32_t ranks) {
  if (!isOf(graphs, ranks)) return std::optional<connect::Layout>();
  // Where a communicator over hosts is split into those of a host, the nets of its file are of no use.
  topo::Document inside = graphs;
  for (topo::Element& graph : inside.root.children)
    for (topo::Element& channel : graph.children)
      std::erase_if(channel.children, [](const topo::Element& stop) { return stop.name == "net"; });
  topo::Graphs found;
  const auto node = readRings(inside, ranksAsGpus(ranks, {}), found);
  if (!node) return tl::unexpected(node.error());
  const auto channels = connect::connectNodes({&*node, 1}, {});
  if (!channels) return tl::unexpected(channels.error());
  return std::optional(connect::Layout::ofChannels(*channels, {&*node, 1}));
}

Result<std::optional<connect::NodeGraphs>> findHostNode(const topo::Document& graphs, int32_t ranks, std::span<const int32_t> nets) {
  if (!isOf(graphs, ranks)) return std::optional<connect::NodeGraphs>();
  topo::System system = ranksAsGpus(ranks, nets);
  system.inter = true;
  topo::Graphs found;
  auto node = readRings(graphs, system, found);
  if (!node) return tl::unexpected(std::move(node).error());
  for (const topo::Channel& ring : found[topo::GraphKind::Ring].channels) {
    const int32_t in = system.at(ring.netIn).net.dev;
    const int32_t out = system.at(ring.netOut).net.dev;
    // Edges of the ring cross by these; what is no edge of it crosses by device 0, as everywhere (connect/layout.h).
    std::vector<connect::NetUse>& uses = node->nets.emplace_back(static_cast<size_t>(ranks), connect::NetUse{out, out});
    uses[static_cast<size_t>(system.at(ring.gpus.front()).gpu.rank)].in = in;
  }
  return std::optional(*std::move(node));
}

}  // namespace tutti::machine
