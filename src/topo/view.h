// A rank's view of the machine: the system graph as far as it matters to its communicator, and the paths in it.
//
// A plain value; made by any thread, read by any.
// 1. GPUs that the rank would reach only through the network are gone (trim), and `system.inter` says whether any rank is outside.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "topo/assemble.h"
#include "topo/graph.h"
#include "topo/paths.h"

namespace tutti::topo {

struct ViewRequest {
  std::vector<UsedHost> hosts;   ///< Those that the graph spans: the own one, or all of a multi-node NVLink clique.
  int ranks = 0;                 ///< Of the whole communicator.
  int rank = 0;                  ///< Who looks; one of hosts.
  std::optional<bool> collNets;  ///< Overrides whether the nets reduce.
  PathSettings settings;
};

struct View {
  Document xml;  ///< What the hosts use, as a dump shows it.
  System system;
  Paths paths;
  std::vector<std::string> notes;  ///< What the XML lacks.
};

/// `nodes` machines of that kind, one rank a GPU, ranks in order of node and then of dev; rank 0 looks. `isClique`: they are one multi-node
/// NVLink clique. `devs`: the GPUs used on each, all where it is empty. Error: a machine without GPUs, an unknown dev.
Result<ViewRequest> identicalNodes(const Document& machine, int nodes, bool isClique, std::span<const int> devs);

Result<View> makeView(const Document& machine, const ViewRequest& request);

}  // namespace tutti::topo
