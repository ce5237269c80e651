// Best paths from every node to the GPUs, nets, CPUs and NVSwitches, rewritten for what peers and NICs can do (P2P, GDR, PXN).
//
// A plain value beside the System that it was computed for: after the system changes, compute again. Read by any thread.
// 1. A path's links lead from its start to its target, in order; a path to oneself has no link, type Loc and kLocalGBps.
// 2. The path a → b and the path b → a may differ: PXN and NIC rules change only the direction that they name.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/status.h"
#include "topo/graph.h"

namespace tutti::topo {

struct Path {
  PathType type = PathType::Dis;
  float GBps = 0;
  int32_t first = 0;  ///< Where its links begin in Paths::pool.
  int32_t count = 0;  ///< How many links it has.
};

/// What settings and the machine allow. Levels are the farthest path type for which direct access is used.
struct PathSettings {
  std::optional<PathType> p2pLevel;      ///< NCCL_P2P_LEVEL, or Loc for NCCL_P2P_DISABLE=1.
  std::optional<PathType> netGdrLevel;   ///< NCCL_NET_GDR_LEVEL.
  std::optional<bool> netGdrRead;        ///< NCCL_NET_GDR_READ.
  bool gdrC2c = true;                    ///< NCCL_NET_GDR_C2C.
  bool nvbDisabled = false;              ///< NCCL_NVB_DISABLE.
  bool pxnDisabled = false;              ///< NCCL_PXN_DISABLE.
  bool pxnC2c = true;                    ///< NCCL_PXN_C2C.
  bool driverP2p = true;                 ///< The driver allows peer access between GPUs of a host.
  bool mnnvl = false;                    ///< All hosts are one multi-node NVLink clique.
};

/// How a net exchanges data with a GPU's memory: through host memory, directly, or directly but forced over PCI.
enum class GdrMode : uint8_t { Off = 0, Default = 1, Pci = 2 };

class Paths {
 public:
  Paths() = default;
  explicit Paths(const System& system);  ///< All Dis.

  /// From any node to a GPU, Net, Cpu or NvSwitch. Both ids are of the system that was given.
  const Path& get(NodeId from, NodeId to) const { return table_[cell(from, to)]; }
  std::span<const LinkId> links(const Path& path) const {
    return {pool_.data() + path.first, static_cast<size_t>(path.count)};
  }
  std::span<const LinkId> links(NodeId from, NodeId to) const { return links(get(from, to)); }

  /// Replaces a path. `first` then `rest` are its links; a span may point into this object.
  void set(NodeId from, NodeId to, PathType type, float GBps, std::span<const LinkId> first, std::span<const LinkId> rest);
  void setType(NodeId from, NodeId to, PathType type) { table_[cell(from, to)].type = type; }

 private:
  size_t cell(NodeId from, NodeId to) const {
    return static_cast<size_t>(column_[static_cast<size_t>(to.value)]) * rows_ + static_cast<size_t>(from.value);
  }

  size_t rows_ = 0;              // nodes of the system
  std::vector<int32_t> column_;  // by node: its place among the targets, −1 for a kind that is none
  std::vector<Path> table_;      // column-major: all starts of one target together
  std::vector<LinkId> pool_;     // links of all paths; paths that were replaced leave theirs behind
};

/// Computes all paths and each net's localGpu. Error: a GPU without any CPU, or a link that only one side states.
Result<Paths> computePaths(System& system, const PathSettings& settings);

/// Drops GPUs that `rank` reaches only through the network, sets `inter`, and computes the paths of what remains.
Result<Paths> trim(System& system, const Paths& paths, int rank, const PathSettings& settings);

/// Sets System::maxGBps and totalGBps from the paths.
void setBandwidths(System& system, const Paths& paths);

/// Whether two GPUs of the system talk to each other directly (perhaps through one GPU between them).
struct PeerAccess {
  bool direct = false;
  bool read = false;        ///< Reading is preferred to writing.
  NodeId between = kNoNode;  ///< The GPU that the path passes.
};
PeerAccess peerAccess(const System& system, const Paths& paths, const PathSettings& settings, NodeId gpu1, NodeId gpu2);

/// GPUDirect RDMA between a GPU and a net; `send`: the NIC reads the GPU's memory.
GdrMode gdrMode(const System& system, const Paths& paths, const PathSettings& settings, NodeId gpu, NodeId net, bool send);

/// The GPU closest to a net, by bandwidth and then type; spread over several equal ones. kNoNode when there is none.
NodeId localGpuOf(const System& system, const Paths& paths, NodeId net);

/// The nets that a GPU uses, in the reference's order: those with the best path; which one is channel's.
std::vector<NodeId> localNetsOf(const System& system, const Paths& paths, NodeId gpu);
NodeId localNetOf(const System& system, const Paths& paths, NodeId gpu, int channel);

NodeId localCpuOf(const System& system, const Paths& paths, NodeId gpu);  ///< By hops; kNoNode when no CPU is reached.

bool allNvLink(const System& system, const Paths& paths);
bool splitNvLink(const System& system, const Paths& paths);  ///< Exactly two NVLink domains.

}  // namespace tutti::topo
