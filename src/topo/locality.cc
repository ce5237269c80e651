#include "topo/locality.h"

#include <algorithm>

#include "topo/reach.h"

namespace tutti::topo {
namespace {

int mirrorBits(int value, int powerOfTwo) {
  int mirrored = 0;
  for (int bit = 1, image = powerOfTwo >> 1; bit < powerOfTwo; bit <<= 1, image >>= 1) {
    if ((value & bit) != 0) mirrored |= image;
  }
  return mirrored;
}

}  // namespace

Locality::Locality(const System& system, const Paths& paths, const PathSettings& settings)
    : system_(system), paths_(paths), settings_(settings), nearest_(system.nodes.size()), server_(system.nodes.size()) {}

const std::vector<NodeId>& Locality::nearest(NodeId node) {
  auto& known = nearest_[static_cast<size_t>(node.value)];
  if (!known) known = localNodes(system_, paths_, node, system_.at(node).kind == NodeKind::Gpu ? NodeKind::Net : NodeKind::Gpu);
  return *known;
}

NetTurns Locality::turnsOf(NodeId gpu) {
  NetTurns found;
  found.nets = nearest(gpu);
  if (found.nets.empty()) return found;
  const int nets = static_cast<int>(found.nets.size());
  if (settings_.netsPerGpu == 0) {
    const int sharers = std::max(1, static_cast<int>(nearest(found.nets[0]).size()));
    found.turns = (nets + sharers - 1) / sharers;
  } else {
    found.turns = settings_.netsPerGpu < 0 ? nets : std::min(nets, settings_.netsPerGpu);
  }
  const int dev = std::max(0, system_.at(gpu).gpu.dev);
  found.first = (nets & (nets - 1)) == 0 ? mirrorBits(dev, nets) : dev;
  return found;
}

NodeId Locality::gpuOf(NodeId net) {
  auto& known = server_[static_cast<size_t>(net.value)];
  if (!known) known = findGpuOf(system_.find(NodeKind::Net, system_.at(net).id));
  return *known;
}

NodeId Locality::findGpuOf(NodeId net) {
  const std::vector<NodeId>& gpus = nearest(net);
  std::vector<NetTurns> turns;
  turns.reserve(gpus.size());
  int most = 0;
  for (const NodeId gpu : gpus) {
    turns.push_back(turnsOf(gpu));
    most = std::max(most, turns.back().turns);
  }
  for (int channel = 0; channel < std::min(most, kMostChannels); ++channel) {
    for (size_t i = 0; i < gpus.size(); ++i) {
      if (!turns[i].nets.empty() && system_.at(turns[i].at(channel)).id == system_.at(net).id) return gpus[i];
    }
  }
  return kNoNode;
}

}  // namespace tutti::topo
