// What the environment says of topologies and channels.
//
// Reads config/; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "core/status.h"
#include "topo/paths.h"
#include "topo/search.h"
#include "topo/xml.h"

namespace tutti::machine {

struct Settings {
  topo::PathSettings paths;
  topo::SearchSettings search;
  std::optional<topo::Document> graphs;  ///< NCCL_GRAPH_FILE.
  uint64_t hash = 0;      ///< Of everything above: ranks on GPUs that have the same mean the same.
  uint64_t hostHash = 0;  ///< Of what host devices obey: nets for each of them, rails, channels of a file.
};

/// As they are now. Error: a value that its variable does not take, a graph file that cannot be read.
Result<Settings> readSettings();

/// Where and by which rank something is written down; an empty path: not at all.
struct Dump {
  std::string path;
  int64_t rank = 0;
};
Dump topologyDump();  ///< NCCL_TOPO_DUMP_FILE, NCCL_TOPO_DUMP_FILE_RANK
Dump graphDump();     ///< NCCL_GRAPH_DUMP_FILE, NCCL_GRAPH_DUMP_FILE_RANK

}  // namespace tutti::machine
