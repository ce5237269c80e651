#include "connect/nodes.h"

#include <set>
#include <utility>

namespace tutti::connect {

Result<std::vector<NodeGraphs>> findNodes(const topo::Document& machine, topo::ViewRequest request, const GraphsOf& graphsOf) {
  std::set<int32_t> waiting;
  for (const topo::UsedHost& host : request.hosts)
    for (const topo::UsedGpu& gpu : host.gpus) waiting.insert(gpu.rank);
  std::vector<NodeGraphs> nodes;
  while (!waiting.empty()) {
    request.rank = *waiting.begin();
    const auto view = topo::makeView(machine, request);
    if (!view) return tl::unexpected(view.error());
    const auto graphs = graphsOf(*view);
    if (!graphs) return tl::unexpected(graphs.error());
    nodes.push_back(nodeGraphs(view->system, *graphs));
    for (const int32_t rank : nodes.back().ranks) waiting.erase(rank);
  }
  return nodes;
}

}  // namespace tutti::connect
