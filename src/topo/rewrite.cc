#include <algorithm>

#include "topo/locality.h"
#include "topo/paths.h"
#include "topo/reach.h"

namespace tutti::topo {
namespace {

/// A way over a CPU's own link and then its PCI bus has a type of its own; otherwise the farther part decides.
PathType mergeTypes(PathType a, PathType b) {
  const auto [near, far] = std::minmax(a, b);
  return near == PathType::C2c && far == PathType::Phb ? PathType::P2c : far;
}

/// Leads from → to over `middle`; nowhere, if `middle` is not between them.
void divert(const System& system, Paths& paths, NodeId from, NodeId middle, NodeId to) {
  const Path first = paths.get(from, middle);
  const Path second = paths.get(middle, to);
  if (first.type == PathType::Dis || second.type == PathType::Dis) return paths.extend(from, to, PathType::Dis, 0, kNoLink, Path{});
  const PathType type = system.at(middle).kind == NodeKind::Gpu ? PathType::Pxn : mergeTypes(first.type, second.type);
  paths.join(from, to, type, std::min(first.GBps, second.GBps), first, second);
}

/// GPUs without peer access exchange through the CPU of the receiver; those that the network serves better are marked Net.
Status rewritePeers(const System& system, const PathSettings& settings, Paths& paths) {
  std::vector<float> nearNet(system.nodes.size(), 0);
  for (const NodeId gpu : system.all(NodeKind::Gpu)) {
    if (!settings.netIntraDisabled) nearNet[static_cast<size_t>(gpu.value)] = fastestNearNet(system, paths, gpu);
  }
  for (const NodeId gpu : system.all(NodeKind::Gpu)) {
    TUTTI_TRY(paths.checkSize());
    for (const NodeId peer : system.all(NodeKind::Gpu)) {
      const auto access = peerAccess(system, paths, settings, peer, gpu);
      if (!access) return access.error();
      if (access->direct) continue;
      divert(system, paths, peer, localCpu(system, paths, gpu), gpu);
    }
    for (const NodeId peer : system.all(NodeKind::Gpu)) {
      if (peer == gpu) continue;
      const auto access = peerAccess(system, paths, settings, peer, gpu);
      if (!access) return access.error();
      if (access->direct && access->between != kNoNode) continue;
      const float alone = paths.get(peer, gpu).GBps;
      const bool prefersNet = nearNet[static_cast<size_t>(gpu.value)] > alone && nearNet[static_cast<size_t>(peer.value)] > alone;
      const bool sharesHost = systemOf(system.at(peer).id) == systemOf(system.at(gpu).id);
      const bool canShare = sharesHost && !settings.shmDisabled;
      if (prefersNet || (!access->direct && !canShare)) paths.setType(peer, gpu, PathType::Net);
    }
  }
  return {};
}

/// A NIC at a CPU that the GPU reaches over C2C.
void markC2cNics(const System& system, Paths& paths) {
  for (const NodeId gpu : system.all(NodeKind::Gpu)) {
    const NodeId cpu = localCpu(system, paths, gpu);
    for (const NodeId net : system.all(NodeKind::Net)) {
      if (mergeTypes(paths.get(gpu, cpu).type, paths.get(net, cpu).type) != PathType::P2c) continue;
      if (paths.get(gpu, net).type == PathType::Dis || paths.get(net, gpu).type == PathType::Dis) continue;
      paths.setType(gpu, net, std::min(PathType::P2c, paths.get(gpu, net).type));
      paths.setType(net, gpu, std::min(PathType::P2c, paths.get(net, gpu).type));
    }
  }
}

/// Whether `gpu` should send to `net` through `relay`, the net's own GPU: it is near the NIC, NVLink leads to it within the host, and
/// the way is wider than the GPU's own or avoids the CPU.
bool shouldRelay(const System& system, const Paths& paths, const PathSettings& settings, NodeId gpu, NodeId relay, NodeId net) {
  const PathType limit = settings.pxnC2c ? PathType::P2c : PathType::Pxb;
  const Path& own = paths.get(gpu, net);
  return paths.get(relay, net).type <= limit && paths.get(relay, gpu).type <= PathType::Nvl &&
         systemOf(system.at(relay).id) == systemOf(system.at(gpu).id) &&
         (paths.get(relay, net).GBps > own.GBps || own.type > PathType::Pxn);
}

Status rewriteNets(const System& system, const PathSettings& settings, Paths& paths, Locality& locality) {
  for (const NodeId net : system.all(NodeKind::Net)) {
    TUTTI_TRY(paths.checkSize());
    for (const NodeId gpu : system.all(NodeKind::Gpu)) {
      if (!settings.pxnDisabled) {
        // Sending only: receiving stays local.
        const NodeId relay = locality.gpuOf(net);
        if (relay != kNoNode && relay != gpu && shouldRelay(system, paths, settings, gpu, relay, net)) {
          divert(system, paths, gpu, relay, net);
          locality.changed(gpu);
        }
      }
      if (paths.get(gpu, net).type >= PathType::Phb) continue;
      if (gdrMode(system, paths, settings, gpu, net, false) != GdrMode::Off) continue;
      const NodeId cpu = localCpu(system, paths, gpu);
      divert(system, paths, net, cpu, gpu);
      divert(system, paths, gpu, cpu, net);
      locality.changed(net);
      locality.changed(gpu);
    }
  }
  return {};
}

}  // namespace

Result<Paths> computePaths(System& system, const PathSettings& settings) {
  Result<Paths> paths = findPaths(system, settings);
  if (!paths) return paths;
  for (const NodeId gpu : system.all(NodeKind::Gpu)) {
    if (localCpu(system, *paths, gpu) == kNoNode) return fail(Code::InvalidUsage, "{} reaches no CPU", nodeName(system, gpu));
  }
  if (Status status = rewritePeers(system, settings, *paths); !status.ok()) return tl::unexpected(std::move(status));
  markC2cNics(system, *paths);
  Locality locality(system, *paths, settings);
  if (Status status = rewriteNets(system, settings, *paths, locality); !status.ok()) return tl::unexpected(std::move(status));
  for (const NodeId net : system.all(NodeKind::Net)) system.at(net).net.localGpu = locality.gpuOf(net);
  return paths;
}

Result<Paths> trim(System& system, const Paths& paths, int rank, const PathSettings& settings) {
  const std::vector<NodeId>& gpus = system.all(NodeKind::Gpu);
  std::vector<size_t> domain(gpus.size());
  size_t own = gpus.size();
  for (size_t g = 0; g < gpus.size(); ++g) {
    domain[g] = g;
    for (size_t p = 0; p < g; ++p) {
      if (paths.get(gpus[g], gpus[p]).type < PathType::Net) domain[g] = std::min(domain[g], domain[p]);
    }
    if (system.at(gpus[g]).gpu.rank == rank) own = domain[g];
  }
  if (own == gpus.size()) return fail(Code::InternalError, "rank {} has no GPU in the system graph", rank);

  std::vector<bool> drop(system.nodes.size(), false);
  for (size_t g = 0; g < gpus.size(); ++g) drop[static_cast<size_t>(gpus[g].value)] = domain[g] != own;
  const bool dropsAny = std::find(drop.begin(), drop.end(), true) != drop.end();
  if (dropsAny) system = withoutNodes(system, drop);
  system.inter = system.count(NodeKind::Gpu) != system.ranks;
  return dropsAny ? computePaths(system, settings) : paths;
}

void setBandwidths(System& system, const Paths& paths) {
  system.maxGBps = 0;
  system.totalGBps = 0;
  const std::vector<NodeId>& gpus = system.all(NodeKind::Gpu);
  if (!system.inter && gpus.size() == 1) {
    system.maxGBps = kLocalGBps;
    system.totalGBps = kLocalGBps;
    return;
  }
  const NodeKind far = system.inter ? NodeKind::Net : NodeKind::Gpu;
  for (const NodeId gpu : gpus) {
    for (const NodeId to : system.all(far)) {
      if (paths.get(gpu, to).count > 0) system.maxGBps = std::max(system.maxGBps, paths.get(gpu, to).GBps);
    }
    float nvlink = 0;
    float pci = 0;
    for (const LinkId id : system.at(gpu).links) {
      const Link& link = system.at(id);
      if (link.type == LinkType::Nvl) nvlink += link.GBps;
      if (link.type == LinkType::Pci) pci = link.GBps;
    }
    system.totalGBps = std::max({system.totalGBps, nvlink, pci});
  }
}

}  // namespace tutti::topo
