// Several hosts like the one that `tutti topo` shows, joined by their nets: the rings that a communicator over them gets.
//
// Pure functions; any thread.
#pragma once

#include <string>

#include "topo/view.h"
#include "topology/facts.h"
#include "topology/graph_facts.h"

namespace tutti::tool {

/// Every ring over `options.nodes` hosts with the ranks of `view` each, and between which ranks it crosses from host to host, by which of
/// their nets; or why there are none. `machine`: what the view was made of. Ends with a line break.
std::string showHosts(const topo::Document& machine, const topo::View& view, const FactsOptions& options, const GraphFactsOptions& graphs);

}  // namespace tutti::tool
