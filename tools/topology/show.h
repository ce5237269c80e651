// A topology as text: the tree of each host, then who reaches whom how fast, and where threads belong.
//
// Pure functions; any thread.
#pragma once

#include <span>
#include <string>

#include "topo/affinity.h"
#include "topo/build.h"
#include "topo/view.h"

namespace tutti::tool {

/// The machine of a view: its nodes, each below what it hangs on, with types and GB/s; the paths of GPUs or host devices to one another and
/// to the nets; and what the XML lacked. Ends with a line break.
std::string showTopology(const topo::View& view, const topo::PathSettings& settings);

/// A machine of which no GPU is known, such as a vendor's file that detection completes: its CPUs with what hangs on them, and what the XML
/// lacked.
std::string showHost(const std::string& name, const topo::Build& build);

/// The CPUs that the process may use, which are where ranks with host devices run; of them those of each NUMA node, with the `caches` that
/// they share, and those that serve each GPU. `paths` has the system's GPUs.
std::string showAffinity(const topo::System& system, const topo::Paths& paths, const topo::CpuSet& allowed, bool ignoreAllowed,
                         std::span<const topo::CpuSet> caches = {});

}  // namespace tutti::tool
