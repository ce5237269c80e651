// Channel sets as graph XML: what NCCL_GRAPH_FILE gives and NCCL_GRAPH_DUMP_FILE writes, in the reference's dialect.
//
// Pure functions; any thread.
// 1. GPUs and nets are named by dev, in hexadecimal with or without 0x; on another host of a clique with its system number in the upper
//    eight bits.
// 2. What was written reads back the same. What does not match the system is an error with file, line, element and what was expected.
#pragma once

#include "topo/search.h"
#include "topo/xml.h"

namespace tutti::topo {

/// The sets of the file; those that it lacks, or states without channels, are not `computed`. A set that changes rails (crossnic 1) is left
/// out where `settings` forbid that. Bounds are 0.
Result<Graphs> readGraphs(const Document& file, const System& system, const SearchSettings& settings);

/// The sets that `request` wants: those of the file where it has them (null: no file), the others searched. A set of the file that promises
/// more than links or nets have is taken as it is, as in the reference, and `note` says so: whoever wrote it may have measured.
/// Error also: a set that is none for this machine, such as a hop without a path, or farther than the set says.
Result<Graphs> findGraphs(const Document* file, const System& system, const Paths& paths, const GraphsRequest& request);

Element writeGraphs(const Graphs& graphs, const System& system);

}  // namespace tutti::topo
