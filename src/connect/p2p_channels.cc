#include "connect/p2p_channels.h"

#include <algorithm>
#include <bit>

#include "topo/bandwidth.h"
#include "topo/reach.h"

namespace tutti::connect {

namespace {

constexpr int32_t kPerPath = 2;

int32_t powerAbove(int32_t number) { return static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(std::max(number, 1)))); }

// Two for every NVLink of a direct connection, two for any other path.
int32_t overPath(const topo::System& system, const topo::Paths& paths, topo::NodeId gpu, topo::NodeId peer) {
  const topo::Path& path = paths.get(peer, gpu);
  if (path.type != topo::PathType::Nvl) return kPerPath;
  return kPerPath * std::max(1, static_cast<int32_t>(path.GBps / topo::nvlinkGBps(system.at(gpu).gpu.sm)));
}

// As many as the GPU needs nets to fill its link to the CPU; fewer than two only where there are more ranks than channels serve.
int32_t overNetwork(const topo::System& system, const topo::Paths& paths, topo::NodeId gpu, int32_t channels) {
  float toCpu = 0;
  for (const topo::LinkId id : system.at(gpu).links) {
    if (system.at(system.at(id).to).kind == topo::NodeKind::Cpu) toCpu = system.at(id).GBps;
  }
  int32_t nets = 0;
  float sum = 0;
  for (const topo::NodeId net : topo::localNodes(system, paths, gpu, topo::NodeKind::Net)) {
    if (sum >= toCpu) break;
    sum += paths.get(gpu, net).GBps;
    ++nets;
  }
  int32_t spread = kPerPath;
  while (spread * system.ranks > channels * 4 && spread > 1) spread /= 2;
  return std::max(nets, spread);
}

}  // namespace

P2pChannels p2pChannels(const topo::System& system, const topo::Paths& paths, int32_t channels) {
  int32_t least = channels;
  const bool leaves = system.ranks > system.count(topo::NodeKind::Gpu);
  for (const topo::NodeId gpu : system.all(topo::NodeKind::Gpu)) {
    for (const topo::NodeId peer : system.all(topo::NodeKind::Gpu)) {
      if (peer != gpu) least = std::min(least, overPath(system, paths, gpu, peer));
    }
    if (leaves) least = std::min(least, overNetwork(system, paths, gpu, channels));
  }
  P2pChannels found;
  found.all = std::min(powerAbove(channels), topo::kMostChannels);
  found.perPeer = std::min(powerAbove(least), found.all);
  return found;
}

}  // namespace tutti::connect
