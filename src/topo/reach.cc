#include "topo/reach.h"

#include <algorithm>

#include "topo/locality.h"

namespace tutti::topo {
namespace {

/// The first net with the id of `net`: paths lead to it alone.
NodeId firstNet(const System& system, NodeId net) { return system.find(NodeKind::Net, system.at(net).id); }

bool isAmdPair(const System& system) {
  if (system.count(NodeKind::Cpu) == 0) return false;
  const CpuInfo& cpu = system.at(system.all(NodeKind::Cpu)[0]).cpu;
  return cpu.arch == CpuArch::X86 && cpu.vendor == CpuVendor::Amd && system.count(NodeKind::Gpu) <= 2;
}

/// Before Ampere, sending straight from a GPU is worth it only where its peers do not need the PCI bus.
bool sendsDirectly(const System& system, const Paths& paths, const PathSettings& settings, NodeId gpu) {
  if (settings.netGdrRead.has_value()) return *settings.netGdrRead;
  if (system.at(gpu).gpu.sm >= 80 || system.count(NodeKind::Gpu) == 1) return true;
  const auto& gpus = system.all(NodeKind::Gpu);
  return std::any_of(gpus.begin(), gpus.end(), [&](NodeId peer) { return peer != gpu && paths.get(gpu, peer).type == PathType::Nvl; });
}

}  // namespace

Result<PeerAccess> peerAccess(const System& system, const Paths& paths, const PathSettings& settings, NodeId gpu1, NodeId gpu2) {
  PeerAccess access;
  const Path& path = paths.get(gpu1, gpu2);
  if (path.count == 2) {
    const NodeId middle = system.at(paths.links(path)[0]).to;
    if (system.at(middle).kind == NodeKind::Gpu) access.between = middle;
  }
  // Across a host bridge it is off by default, except between two GPUs of an AMD host.
  const PathType usual = isAmdPair(system) ? PathType::Sys : PathType::Pxb;
  const PathType level = settings.p2pDisabled ? PathType::Loc : settings.p2pLevel.value_or(usual);
  access.direct = path.type <= level;
  const auto isOwn = [&](NodeId gpu) { return systemOf(system.at(gpu).id) == system.systemId; };
  if (access.direct && !settings.driverP2p && gpu1 != gpu2 && isOwn(gpu1) && isOwn(gpu2)) {
    if (path.type <= PathType::Nvb) {
      return fail(Code::UnhandledCudaError, "the driver forbids peer access between {} and {}, which NVLink connects",
                  nodeName(system, gpu1), nodeName(system, gpu2));
    }
    access.direct = false;
  }
  access.read = path.type == PathType::Nvl && system.at(gpu1).gpu.sm == 80 && system.at(gpu2).gpu.sm == 80;
  return access;
}

float fastestNearNet(const System& system, const Paths& paths, NodeId gpu) {
  float best = 0;
  for (const NodeId net : system.all(NodeKind::Net)) {
    const Path& path = paths.get(gpu, net);
    if (path.type <= PathType::Pxb) best = std::max(best, path.GBps);
  }
  return best;
}

NodeId pxnGpu(const System& system, const Paths& paths, NodeId gpu, NodeId net) {
  const Path& path = paths.get(gpu, net);
  if (path.type != PathType::Pxn) return gpu;
  for (const LinkId link : paths.links(path)) {
    const NodeId passed = system.at(link).to;
    if (system.at(passed).kind != NodeKind::NvSwitch) return passed;
  }
  return gpu;
}

GdrMode gdrMode(const System& system, const Paths& paths, const PathSettings& settings, NodeId gpu, NodeId net, bool send) {
  net = firstNet(system, net);
  if (!system.at(net).net.gdr || !system.at(gpu).gpu.gdr) return GdrMode::Off;
  if (send && !sendsDirectly(system, paths, settings, gpu)) return GdrMode::Off;

  gpu = pxnGpu(system, paths, gpu, net);
  PathType distance = paths.get(gpu, net).type;
  if (settings.gdrC2c && distance == PathType::P2c) distance = PathType::C2c;
  if (distance > settings.netGdrLevel.value_or(PathType::Pxb)) return GdrMode::Off;

  // Where the CPU is reached over C2C but the NIC over PCI, the mapping has to go over PCI too.
  const NodeId cpu = localCpu(system, paths, gpu);
  const bool isC2cHost = cpu != kNoNode && paths.get(gpu, cpu).type == PathType::C2c;
  return isC2cHost && distance != PathType::C2c ? GdrMode::Pci : GdrMode::Default;
}

std::vector<NodeId> localNodes(const System& system, const Paths& paths, NodeId from, NodeKind kind) {
  std::vector<NodeId> found;
  PathType type = PathType::Dis;
  float GBps = 0;
  for (const NodeId to : system.all(kind)) {
    const Path& path = paths.get(from, to);
    if (path.type == PathType::Dis) continue;
    if (path.GBps > GBps || (path.GBps == GBps && path.type < type)) {
      GBps = path.GBps;
      type = path.type;
      found.clear();
    }
    if (path.GBps == GBps && path.type == type) found.push_back(to);
  }
  return found;
}

NodeId localNet(const System& system, const Paths& paths, const PathSettings& settings, NodeId gpu, int channel) {
  Locality locality(system, paths, settings);
  const NetTurns turns = locality.turnsOf(gpu);
  return turns.nets.empty() ? kNoNode : turns.at(channel);
}

NodeId localGpu(const System& system, const Paths& paths, const PathSettings& settings, NodeId net) {
  return Locality(system, paths, settings).gpuOf(net);
}

NodeId localCpu(const System& system, const Paths& paths, NodeId gpu) {
  NodeId nearest = kNoNode;
  int hops = 0;
  for (const NodeId cpu : system.all(NodeKind::Cpu)) {
    const int count = paths.get(gpu, cpu).count;
    if (count > 0 && (nearest == kNoNode || count < hops)) {
      nearest = cpu;
      hops = count;
    }
  }
  return nearest;
}

PathRange rangeFromGpus(const System& system, const Paths& paths, NodeKind kind) {
  PathRange range;
  for (const NodeId gpu : system.all(NodeKind::Gpu)) {
    for (const NodeId to : system.all(kind)) {
      if (to == gpu) continue;
      range.nearest = std::min(range.nearest, paths.get(gpu, to).type);
      range.farthest = std::max(range.farthest, paths.get(gpu, to).type);
    }
  }
  return range;
}

bool isAllNvLink(const System& system, const Paths& paths) { return rangeFromGpus(system, paths, NodeKind::Gpu).farthest < PathType::Pix; }

bool isSplitNvLink(const System& system, const Paths& paths) {
  const auto& gpus = system.all(NodeKind::Gpu);
  std::vector<size_t> domain(gpus.size());
  std::vector<int> members(gpus.size(), 0);
  for (size_t i = 0; i < gpus.size(); ++i) domain[i] = i;
  for (size_t i = 0; i < gpus.size(); ++i) {
    for (size_t j = i + 1; j < gpus.size(); ++j) {
      if (paths.get(gpus[i], gpus[j]).type == PathType::Nvl) domain[j] = domain[i];
    }
  }
  for (const size_t d : domain) ++members[d];
  return std::count_if(members.begin(), members.end(), [](int count) { return count > 1; }) == 2;
}

}  // namespace tutti::topo
