// Best paths from every node to the GPUs, nets, CPUs and NVSwitches, rewritten for what peers and NICs can do (P2P, GDR, PXN).
//
// A plain value beside the System that it was computed for: after the system changes, compute again. Read by any thread.
// 1. A path's links lead from its start to its target, in order; a path to oneself has no link, type Loc and kLocalGBps.
// 2. The path a → b and the path b → a may differ: PXN and NIC rules change only the direction that they name.
// 3. No path is Dis with 0 GB/s. A path of type Net is kept only until trim: the peers talk through the network.
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
  int32_t first = 0;  ///< Where its links begin in the pool of its Paths.
  int32_t count = 0;  ///< How many links it has.
};

/// What settings and the machine allow. Levels are the farthest path type for which direct access is used.
struct PathSettings {
  std::optional<PathType> p2pLevel = std::nullopt;     ///< NCCL_P2P_LEVEL.
  bool p2pDisabled = false;                            ///< NCCL_P2P_DISABLE: wins over the level.
  std::optional<PathType> netGdrLevel = std::nullopt;  ///< NCCL_NET_GDR_LEVEL.
  std::optional<bool> netGdrRead = std::nullopt;       ///< NCCL_NET_GDR_READ, where it is 0 or more.
  bool gdrC2c = true;                   ///< NCCL_NET_GDR_C2C.
  bool nvbDisabled = false;             ///< NCCL_NVB_DISABLE.
  bool pxnDisabled = false;             ///< NCCL_PXN_DISABLE.
  bool pxnC2c = true;                   ///< NCCL_PXN_C2C.
  bool netIntraDisabled = false;        ///< NCCL_NET_DISABLE_INTRA: no network within a host, however fast.
  bool shmDisabled = false;             ///< NCCL_SHM_DISABLE.
  bool driverP2p = true;                ///< The driver allows peer access between the GPUs of the own host.
  int netsPerGpu = 0;                   ///< NCCL_NETDEVS_POLICY: 0 is AUTO, −1 ALL, others MAX:n.
};

class Paths {
 public:
  Paths() = default;
  explicit Paths(const System& system);  ///< All Dis.

  /// From any node to a GPU, Net, Cpu, NvSwitch or Host. Both ids are of the system that was given.
  const Path& get(NodeId from, NodeId to) const { return table_[cell(from, to)]; }
  std::span<const LinkId> links(const Path& path) const {
    return {pool_.data() + path.first, static_cast<size_t>(path.count)};
  }
  std::span<const LinkId> links(NodeId from, NodeId to) const { return links(get(from, to)); }

  /// Makes from → to the link `head` (none if kNoLink), then the links of `rest`, a path of this object.
  void extend(NodeId from, NodeId to, PathType type, float GBps, LinkId head, const Path& rest);
  /// Makes from → to the links of `first`, then those of `second`, paths of this object.
  void join(NodeId from, NodeId to, PathType type, float GBps, const Path& first, const Path& second);
  void setType(NodeId from, NodeId to, PathType type) { table_[cell(from, to)].type = type; }
  /// InvalidUsage once there are more than kMostLinks on all paths: a machine far larger than any.
  Status checkSize() const;
  static constexpr size_t kMostLinks = size_t{1} << 26;

 private:
  size_t cell(NodeId from, NodeId to) const {
    return static_cast<size_t>(column_[static_cast<size_t>(to.value)]) * rows_ + static_cast<size_t>(from.value);
  }
  void append(const Path& path);

  size_t rows_ = 0;              // nodes of the system
  std::vector<int32_t> column_;  // by node: its place among the targets, −1 for a kind that is none
  std::vector<Path> table_;      // column-major: all starts of one target together
  std::vector<LinkId> pool_;     // links of all paths; paths that were replaced leave theirs behind
};

/// Shortest paths of falling bandwidth over the bare links, before any rewriting. Error: a link that only one side states.
Result<Paths> findPaths(const System& system, const PathSettings& settings);

/// findPaths, rewritten by what peers and NICs can do; sets each net's localGpu. Error: also a GPU that reaches no CPU.
Result<Paths> computePaths(System& system, const PathSettings& settings);

/// Drops the GPUs that `rank` reaches only through the network, sets `inter` (a rank of the communicator is not in the graph), and
/// computes the paths of what remains.
Result<Paths> trim(System& system, const Paths& paths, int rank, const PathSettings& settings);

/// Sets System::maxGBps and totalGBps from the paths.
void setBandwidths(System& system, const Paths& paths);

}  // namespace tutti::topo
