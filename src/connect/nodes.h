// The nodes that a view's hosts fall into, each with its channels: GPUs that only the network joins are nodes of their own.
//
// Pure functions but for what `graphsOf` does; any thread.
#pragma once

#include <functional>
#include <vector>

#include "connect/channels.h"
#include "topo/view.h"

namespace tutti::connect {

/// The channel sets of a view's node.
using GraphsOf = std::function<Result<topo::Graphs>(const topo::View& view)>;

/// Of all ranks that `request` names, in order of their lowest ranks; `request.rank` does not matter. Error: makeView's or graphsOf's.
Result<std::vector<NodeGraphs>> findNodes(const topo::Document& machine, topo::ViewRequest request, const GraphsOf& graphsOf);

}  // namespace tutti::connect
