// Which nets a GPU uses and which GPU serves a net, remembered until a path changes that they depend on.
//
// Owner: a function that asks often (rewriting asks for every pair of GPU and net). Not shared between threads.
// 1. What was remembered about a node counts until changed() names it: its paths to the other kind are not those any more.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "topo/graph.h"
#include "topo/paths.h"

namespace tutti::topo {

/// The nets that a GPU takes turns at: channel c uses nets[(first + c % turns) % nets.size()]. A view of a Locality, until that changes.
struct NetTurns {
  std::span<const NodeId> nets;
  int first = 0;
  int turns = 0;

  NodeId at(int channel) const { return nets[static_cast<size_t>(first + channel % turns) % nets.size()]; }
};

class Locality {
 public:
  Locality(const System& system, const Paths& paths, const PathSettings& settings);

  /// As localGpu of reach.h says.
  NodeId gpuOf(NodeId net);
  /// Those of a GPU; without nets where it reaches none.
  NetTurns turnsOf(NodeId gpu);
  void changed(NodeId node) {
    nearest_[static_cast<size_t>(node.value)].reset();
    server_.assign(server_.size(), std::nullopt);
  }

 private:
  const std::vector<NodeId>& nearest(NodeId node);
  NodeId findGpuOf(NodeId net);

  const System& system_;
  const Paths& paths_;
  const PathSettings& settings_;
  std::vector<std::optional<std::vector<NodeId>>> nearest_;  // by node: of a GPU its nets, of a net its GPUs
  std::vector<std::optional<NodeId>> server_;                // by node: gpuOf a net
};

}  // namespace tutti::topo
