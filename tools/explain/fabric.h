// What the model of links is told of a machine: the channels that search and connect find for its topology.
//
// Pure functions; any thread.
#pragma once

#include "connect/channels.h"
#include "topology/graph_facts.h"
#include "tune/link_model.h"

namespace tutti::tool {

/// Of `facts.nodes` such machines, one rank a GPU. Speeds and links are those of rank 0's node. Error: what reading the topology, searching
/// and connecting say.
Result<tune::Fabric> fabricOf(const topo::Document& machine, const FactsOptions& facts, const GraphFactsOptions& graphs);

}  // namespace tutti::tool
