// What can be read off the paths: direct access between GPUs, GPUDirect RDMA, and which GPU, net and CPU belong together.
//
// Pure functions of a System, its Paths and the settings; any thread.
// 1. Several nets may carry the same id (one virtual NIC listed under each CPU); the first of them stands for all.
#pragma once

#include <vector>

#include "core/status.h"
#include "topo/graph.h"
#include "topo/paths.h"

namespace tutti::topo {

/// How a net exchanges data with a GPU's memory: through host memory, directly, or directly but forced over PCI.
enum class GdrMode : uint8_t { Off = 0, Default = 1, Pci = 2 };

/// Whether two GPUs of the system talk to each other directly, perhaps through one GPU between them.
struct PeerAccess {
  bool direct = false;
  bool read = false;         ///< Reading is preferred to writing.
  NodeId between = kNoNode;  ///< The GPU that the path passes.
};

/// Error: the driver forbids access between GPUs that NVLink connects.
Result<PeerAccess> peerAccess(const System& system, const Paths& paths, const PathSettings& settings, NodeId gpu1, NodeId gpu2);

/// GB/s to the fastest net that a GPU reaches without passing a CPU; 0 without any. Two GPUs for which it is more than the path between
/// them gives are better served by the network.
float fastestNearNet(const System& system, const Paths& paths, NodeId gpu);

/// GPUDirect RDMA between a GPU and a net; `send`: the NIC reads the GPU's memory.
GdrMode gdrMode(const System& system, const Paths& paths, const PathSettings& settings, NodeId gpu, NodeId net, bool send);

/// The GPU that a PXN path from `gpu` to `net` passes; `gpu` itself for any other path.
NodeId pxnGpu(const System& system, const Paths& paths, NodeId gpu, NodeId net);

/// Of all `kind` nodes that `from` reaches, those with the highest bandwidth and then the nearest type, in the order of the system.
std::vector<NodeId> localNodes(const System& system, const Paths& paths, NodeId from, NodeKind kind);

/// The net that a GPU uses on a channel; kNoNode when it reaches none.
NodeId localNet(const System& system, const Paths& paths, const PathSettings& settings, NodeId gpu, int channel);

/// The GPU that serves a net: the first that uses it on the lowest channel. kNoNode when none does.
NodeId localGpu(const System& system, const Paths& paths, const PathSettings& settings, NodeId net);

NodeId localCpu(const System& system, const Paths& paths, NodeId gpu);  ///< By hops; kNoNode when no CPU is reached.

/// The nearest (at most Sys) and the farthest type of any path from a GPU to another node of that kind.
struct PathRange {
  PathType nearest = PathType::Sys;
  PathType farthest = PathType::Loc;
};
PathRange rangeFromGpus(const System& system, const Paths& paths, NodeKind kind);

bool isAllNvLink(const System& system, const Paths& paths);
bool isSplitNvLink(const System& system, const Paths& paths);  ///< Exactly two NVLink domains of several GPUs.

}  // namespace tutti::topo
