// A topology as text: the tree of each host, then who reaches whom how fast.
//
// Pure functions; any thread.
#pragma once

#include <string>

#include "topo/view.h"

namespace tutti::tool {

/// The machine of a view: its nodes, each below what it hangs on, with types and GB/s; the GPUs' paths to one another and to the nets; and
/// what the XML lacked. Ends with a line break.
std::string showTopology(const topo::View& view, const topo::PathSettings& settings);

}  // namespace tutti::tool
