// Ranks with host devices on a machine, for `tutti topo`: their view, and their ring.
//
// Pure functions; any thread.
#pragma once

#include <optional>
#include <string>

#include "topo/affinity.h"
#include "topo/search.h"
#include "topo/view.h"
#include "topology/facts.h"

namespace tutti::tool {

bool hasHostDevices(const topo::Document& machine);

/// The host devices that the machine states, or as many as `options` want on the CPUs that `allowed` leaves.
Result<topo::View> hostViewOf(const topo::Document& machine, const FactsOptions& options, const std::optional<topo::CpuSet>& allowed);

/// The ring of a communicator of these ranks, as channels have it: those of a NUMA node beside each other, NUMA nodes by distance. Its
/// speed is that of its narrowest hop.
topo::Graphs hostGraphs(const topo::View& view);

/// Its order, as text that ends with a line break.
std::string showHostRing(const topo::View& view);

}  // namespace tutti::tool
