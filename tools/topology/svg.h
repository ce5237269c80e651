// A topology as a picture (SVG): CPUs, switches, GPUs, NICs and nets in their trees, links with type and GB/s, channels below.
//
// Pure function; any thread.
// 1. Each channel's ring or tree is a strip of its own below the machine, its GPUs and nets in the same columns; equal ones are one strip.
#pragma once

#include <string>

#include "topo/search.h"
#include "topo/view.h"

namespace tutti::tool {

/// `graphs` null: no channels.
std::string drawTopology(const topo::View& view, const topo::Graphs* graphs);

}  // namespace tutti::tool
