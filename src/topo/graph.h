// The system graph: GPUs, host devices, PCI switches, NVSwitches, CPUs (NUMA nodes), NICs and nets, and the links between them.
//
// A plain value: who holds a System owns it; read by any thread once made. There are no pointers between nodes.
// 1. A node is named by its index in `nodes`; `ofKind[kind]` lists the nodes of a kind in the reference's order, which all tie-breaks
// follow.
// 2. Links are directed. `Node::links` is ordered by falling bandwidth, equal ones in order of making; of a node of a PCI tree the
//    link towards the CPU comes last. Each link knows its reverse.
// 3. Between two nodes there is at most one link of a type; parallel ones are one link with the sum of their bandwidths.
// 4. A node's id is unique among the nodes of its kind: the system (host) in the upper 8 bits, the local id in the lower 56.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"

namespace tutti::topo {

enum class NodeKind : uint8_t { Gpu, Pci, NvSwitch, Cpu, Nic, Net, Host };
inline constexpr int kNodeKinds = 7;
inline constexpr std::array kAllNodeKinds = {NodeKind::Gpu, NodeKind::Pci, NodeKind::NvSwitch, NodeKind::Cpu,
                                             NodeKind::Nic, NodeKind::Net, NodeKind::Host};

/// How far apart two nodes are, nearest first. Values are the reference's, which graph XML and level settings name.
enum class PathType : uint8_t { Loc, Nvl, Nvb, C2c, Pix, Pxb, P2c, Pxn, Phb, Sys, Net, Dis };

/// What a link is. The values are those of PathType, so that a path of one link has the link's type.
enum class LinkType : uint8_t { Loc = 0, Nvl = 1, C2c = 3, Pci = 4, Sys = 9, Net = 10 };

constexpr PathType pathTypeOf(LinkType type) { return static_cast<PathType>(type); }

using NodeId = Id<struct NodeTag, int32_t>;  ///< An index into System::nodes.
using LinkId = Id<struct LinkTag, int32_t>;  ///< An index into System::links.
inline constexpr NodeId kNoNode{-1};
inline constexpr LinkId kNoLink{-1};

inline constexpr int kMostChannels = 64;  ///< Of a communicator.

inline constexpr float kLocalGBps = 5000.0F;  ///< Bandwidth of a path from a node to itself.

struct Link {
  NodeId from;
  NodeId to;
  LinkType type = LinkType::Loc;
  float GBps = 0;
  LinkId reverse = kNoLink;  ///< The link of the same type from `to` to `from`; kNoLink where only one side states it.
};

enum class CpuArch : int8_t { Undefined = -1, X86 = 1, Power = 2, Arm = 3, Mixed = 4 };
enum class CpuVendor : int8_t { Undefined = -1, Intel = 1, Amd = 2, Zhaoxin = 3, Mixed = 4 };
enum class CpuModel : int8_t { Undefined = -1, Broadwell = 1, Skylake = 2, SapphireRapids = 3, EmeraldRapids = 4, Yongfeng = 1 };

struct GpuInfo {
  int dev = -1;    ///< Index in its host, as NVML counts.
  int rank = -1;   ///< In the communicator.
  int sm = 0;      ///< Compute capability × 10; of an AMD GPU, what the XML's sm says.
  bool gdr = false;  ///< NICs can reach its memory.
  std::string gcn;   ///< Architecture of an AMD GPU; empty otherwise.
};

struct NetInfo {
  int dev = -1;  ///< Index in its plugin.
  int port = 0;
  uint64_t guid = 0;   ///< Tells NICs apart: ports of one NIC share it.
  uint64_t busId = 0;  ///< Of the NIC's PCI device.
  float GBps = 0;
  float latencyUs = 0;
  int maxChannels = 0;
  bool gdr = false;
  bool coll = false;       ///< The network reduces.
  // NOLINTNEXTLINE(readability-redundant-member-init): else gcc warns where designated initializers leave it out
  std::vector<int> members = {};  ///< Of a virtual net the devs that it is made of (merge.h).
  NodeId localGpu = kNoNode;  ///< The GPU that serves it (computePaths sets it).
};

/// How far a NUMA node's memory is, as the kernel counts: 10 is one's own.
struct NumaDistance {
  int32_t numa = 0;
  int distance = 0;
};

struct CpuInfo {
  CpuArch arch = CpuArch::Undefined;
  CpuVendor vendor = CpuVendor::Undefined;
  CpuModel model = CpuModel::Undefined;
  std::string affinity;  ///< Hex mask in comma groups, as in the XML.
  int64_t memoryMiB = 0;  ///< 0: nobody has said.
  std::vector<NumaDistance> distances = {};  // NOLINT(readability-redundant-member-init): as above
};

/// A rank that computes with CPUs (host_devices.h).
struct HostInfo {
  int dev = -1;
  int rank = -1;
  std::string cpus;  ///< "0-3,8": where its threads may run; empty: nobody has said.
};

struct Node {
  NodeKind kind = NodeKind::Pci;
  uint64_t id = 0;            ///< System in the upper 8 bits, local id in the others.
  std::vector<LinkId> links;  ///< Those that leave it (invariant 2).
  GpuInfo gpu;                ///< Meaningful only for the kind it names, as the next four.
  NetInfo net;
  CpuInfo cpu;
  HostInfo host;
  uint64_t pciDevice = 0;  ///< vendor, device, subsystem vendor, subsystem device: 16 bits each.
};

constexpr int systemOf(uint64_t id) { return static_cast<int>(id >> 56); }
constexpr uint64_t localIdOf(uint64_t id) { return id & 0x00ffffffffffffffULL; }
constexpr uint64_t makeNodeId(int system, uint64_t local) { return (static_cast<uint64_t>(system) << 56) | localIdOf(local); }

struct System {
  std::vector<Node> nodes;
  std::vector<Link> links;
  std::array<std::vector<NodeId>, kNodeKinds> ofKind;
  std::vector<uint64_t> hostHashes;  ///< By system number.
  int systemId = 0;                  ///< The system number of the rank that looks.
  int ranks = 0;                     ///< Of the communicator; more than GPUs here where it spans several systems.
  bool inter = false;                ///< The communicator has ranks outside this graph (trim sets it).
  float maxGBps = 0;    ///< Of the best path that a GPU has: to a net when `inter`, otherwise to another GPU.
  float totalGBps = 0;  ///< Of the GPU with the most: its NVLinks together, or its PCI link.

  Node& at(NodeId id) { return nodes[static_cast<size_t>(id.value)]; }
  const Node& at(NodeId id) const { return nodes[static_cast<size_t>(id.value)]; }
  Link& at(LinkId id) { return links[static_cast<size_t>(id.value)]; }
  const Link& at(LinkId id) const { return links[static_cast<size_t>(id.value)]; }
  const std::vector<NodeId>& all(NodeKind kind) const { return ofKind[static_cast<size_t>(kind)]; }
  int count(NodeKind kind) const { return static_cast<int>(all(kind).size()); }

  NodeId addNode(NodeKind kind, uint64_t id);
  NodeId find(NodeKind kind, uint64_t id) const;  ///< kNoNode when there is none.
  NodeId gpuOfRank(int rank) const;               ///< kNoNode when there is none.
  LinkId linkBetween(NodeId from, NodeId to, LinkType type) const;  ///< kNoLink when there is none.

  /// Adds `GBps` to the link from → to of that type, which is made if need be; keeps invariants 2 and 3.
  void connect(NodeId from, NodeId to, LinkType type, float GBps);
};

/// `system` without the nodes for which drop[node index] is set, and without links to them; all other order is kept.
System withoutNodes(const System& system, const std::vector<bool>& drop);

/// GPU3, HOST3, NET1 (NET2.1 for another system's), PCI0-1d000, NVS0-0, CPU0-1, NIC0-18000: as expected facts and messages name it.
std::string nodeName(const System& system, NodeId id);

/// A GPU's, NIC's or switch's id as a PCI address: 0000:1b:00.0.
std::string busIdText(uint64_t id);

std::string_view nodeKindName(NodeKind kind);  ///< "GPU", "PCI", "NVS", "CPU", "NIC", "NET", "HOST".
std::string_view linkTypeName(LinkType type);  ///< "LOC", "NVL", "C2C", "PCI", "SYS", "NET".
std::string_view pathTypeName(PathType type);  ///< "LOC", "NVL", "NVB", … "DIS".
std::optional<PathType> pathTypeFromName(std::string_view name);

}  // namespace tutti::topo
