// What a topology comes to, as JSON with the field names of the reference's facts: the system, its paths, GPUDirect RDMA.
//
// Pure functions; any thread. One run is one way of using the machine; rank 0 looks.
// 1. `system`, `paths`, `topoFlags`, `gdr` and `localNets_channels0to7` are made here; `graphs` and `final` by whoever has searched, into
//    the same object.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "topo/merge.h"
#include "topo/view.h"

namespace tutti::tool {

struct FactsOptions {
  int nodes = 1;
  bool isCollNet = false;
  bool isClique = false;  ///< The nodes are one multi-node NVLink clique.
  std::vector<int> gpus;  ///< Devs used on each node; empty for all.
  std::optional<int> hostDevices = std::nullopt;  ///< Ranks compute with so many (0: one a CPU), not with GPUs.
  topo::PathSettings settings;
  topo::MergeSettings merge = {};
};

/// As the reference's files have numbers: six significant digits.
double rounded(float value);

/// The view of rank 0 in such a run.
Result<topo::View> viewOf(const topo::Document& machine, const FactsOptions& options);

/// The facts of one run, in the order of the reference's files.
nlohmann::ordered_json factsOf(const topo::View& view, const FactsOptions& options);

}  // namespace tutti::tool
