// The channels of a run as JSON with the field names of the reference's facts: `graphs`, and `final` over all nodes.
//
// Pure functions but for the clock, which says how long the search took; any thread.
// 1. `graphs` are those of rank 0's node; beside the reference's fields stand `bound`, the proven limit of channels × speed, and `busiest`:
//    the link with the most load for its bandwidth where hops carry data both ways, and what the channels charge it.
// 2. Of `final`, what tuning adds is not made here.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "connect/channels.h"
#include "core/status.h"
#include "topology/facts.h"

namespace tutti::tool {

struct GraphFactsOptions {
  int crossNic = 2;      ///< NCCL_CROSS_NIC.
  int minChannels = 0;   ///< NCCL_MIN_NCHANNELS.
  int maxChannels = topo::kMostChannels;  ///< NCCL_MAX_NCHANNELS.
  std::string graphFile;  ///< NCCL_GRAPH_FILE; its sets replace those that would be searched. Empty: none.
};

/// The sets of the view's node: from the graph file where it has them, otherwise searched.
Result<topo::Graphs> graphsOf(const topo::View& view, const FactsOptions& options, const GraphFactsOptions& graphs);

/// What every node of the run brings, in order of their ranks: the host's GPUs fall into several nodes where only the network joins them.
/// `firstNode`: the sets of rank 0's, which the caller has.
Result<std::vector<connect::NodeGraphs>> nodesOf(const topo::Document& machine, const FactsOptions& options,
                                                 const GraphFactsOptions& graphs, const topo::Graphs& firstNode);

/// The sets of the view's node, as they were stated.
Result<topo::Graphs> addGraphFacts(nlohmann::ordered_json& run, const topo::Document& machine, const topo::View& view,
                                   const FactsOptions& options, const GraphFactsOptions& graphs);

/// Of ranks with host devices: the ring alone (host_view.h).
Result<topo::Graphs> addHostGraphFacts(nlohmann::ordered_json& run, const topo::View& view);

/// The variables that applyGraphVariables() knows.
std::span<const std::string_view> graphVariables();

/// The options that the variables of these names and values mean; others are left alone. Error: a value that the variable does not take.
Status applyGraphVariables(const std::vector<std::pair<std::string, std::string>>& variables, GraphFactsOptions& graphs);

}  // namespace tutti::tool
