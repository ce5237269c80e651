#include "machine/host_layout.h"

#include <utility>

#include "connect/channels.h"
#include "core/format.h"
#include "topo/graph_xml.h"

namespace tutti::machine {
namespace {

topo::System ranksAsGpus(int32_t ranks) {
  topo::System system;
  system.hostHashes = {0};
  system.ranks = ranks;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const topo::NodeId node = system.addNode(topo::NodeKind::Gpu, topo::makeNodeId(0, static_cast<uint64_t>(rank)));
    system.at(node).gpu = {.dev = rank, .rank = rank, .sm = 0, .gdr = false, .gcn = {}};
  }
  return system;
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
  const topo::System system = ranksAsGpus(ranks);
  auto found = topo::readGraphs(graphs, system, {});
  if (!found) return tl::unexpected(std::move(found).error());
  connect::NodeGraphs node = connect::nodeGraphs(system, *found);
  if (node.rings.empty()) return fail(Code::InvalidUsage, "{}: there is no graph 0 with channels, which are the rings", graphs.file);
  if (node.trees.empty()) node.trees = node.rings;
  const auto channels = connect::connectNodes({&node, 1}, {});
  if (!channels) return tl::unexpected(channels.error());
  return std::optional(connect::Layout::ofChannels(*channels, {&node, 1}));
}

}  // namespace tutti::machine
