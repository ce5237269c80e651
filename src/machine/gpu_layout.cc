#include "machine/gpu_layout.h"

#include <algorithm>
#include <utility>

#include "connect/nodes.h"
#include "core/format.h"
#include "topo/feasible.h"
#include "topo/graph_xml.h"
#include "topo/reach.h"

namespace tutti::machine {
namespace {

using topo::GraphKind;
using topo::NodeId;
using topo::NodeKind;

/// Every ring in order of ranks, if that carries as much.
void straighten(const topo::View& view, topo::ChannelSet& rings) {
  if (view.system.inter) return;
  std::vector<NodeId> order = view.system.all(NodeKind::Gpu);
  std::sort(order.begin(), order.end(), [&](NodeId a, NodeId b) { return view.system.at(a).gpu.rank < view.system.at(b).gpu.rank; });
  topo::ChannelSet straight = rings;
  for (topo::Channel& channel : straight.channels) channel.gpus = order;
  const topo::SearchRequest request{.pattern = topo::Pattern::Ring, .maxChannels = topo::kMostChannels};
  if (checkChannels(view.system, view.paths, request, straight).ok()) rings = std::move(straight);
}

bool isUniform(const topo::View& view) {
  const auto& gpus = view.system.all(NodeKind::Gpu);
  if (view.system.inter || gpus.size() < 2) return !view.system.inter;
  const topo::Path& first = view.paths.get(gpus[0], gpus[1]);
  for (const NodeId from : gpus) {
    for (const NodeId to : gpus) {
      const topo::Path& path = view.paths.get(from, to);
      if (from != to && (path.type != first.type || path.GBps != first.GBps)) return false;
    }
  }
  return true;
}

}  // namespace

Result<GpuLayout> findGpuLayout(const Machine& machine, std::span<const int> devs, const Settings& settings) {
  const int ranks = static_cast<int>(devs.size());
  topo::ViewRequest request{
      .hosts = {{.hostHash = machine.hash, .gpus = {}}}, .ranks = ranks, .rank = 0, .collNets = {}, .settings = settings.paths};
  request.settings.netIntraDisabled = true;
  for (int rank = 0; rank < ranks; ++rank) {
    const int dev = devs[static_cast<size_t>(rank)];
    for (const topo::UsedGpu& other : request.hosts[0].gpus)
      if (other.dev == dev) return fail(Code::InvalidUsage, "ranks {} and {} compute with the same GPU {}", other.rank, rank, dev);
    request.hosts[0].gpus.push_back({.dev = dev, .rank = rank});
  }

  GpuLayout found;
  found.nearCpus.resize(devs.size());
  bool isFirst = true;
  const auto graphsOf = [&](const topo::View& view) -> Result<topo::Graphs> {
    for (const NodeId gpu : view.system.all(NodeKind::Gpu))
      found.nearCpus[static_cast<size_t>(view.system.at(gpu).gpu.rank)] = cpusForGpu(view.system, view.paths, gpu, {}, true);
    const topo::GraphsRequest wanted{.collnet = false, .nvls = false, .settings = settings.search};
    auto graphs = topo::findGraphs(settings.graphs ? &*settings.graphs : nullptr, view.system, view.paths, wanted);
    if (!graphs) return graphs;
    if (!settings.graphs) straighten(view, (*graphs)[GraphKind::Ring]);
    if (std::exchange(isFirst, false)) {
      found.view = view;
      found.graphs = *graphs;
      found.isUniform = isUniform(view) && !settings.graphs;
    }
    return graphs;
  };
  const auto nodes = connect::findNodes(machine.document, request, graphsOf);
  if (!nodes) return tl::unexpected(nodes.error());
  auto channels = connect::connectNodes(*nodes, {});
  if (!channels) return tl::unexpected(std::move(channels).error());
  found.channels = *std::move(channels);
  found.layout = found.isUniform ? connect::Layout(found.channels.rings[0]) : connect::Layout::ofChannels(found.channels, *nodes);
  return found;
}

std::shared_ptr<const Result<GpuLayout>> GpuLayouts::find(const Machine& machine, std::span<const int> devs, const Settings& settings) {
  const std::lock_guard lock(mutex_);  // ranks of a process ask for the same at the same time: one finds it for all
  Key key{machine.hash, settings.hash, {devs.begin(), devs.end()}};
  auto& known = known_[key];
  if (known != nullptr) return known;
  auto made = std::make_shared<const Result<GpuLayout>>(findGpuLayout(machine, devs, settings));
  known = made;
  if (known_.size() > kMostKept) known_.erase(known_.begin()->first == key ? std::next(known_.begin()) : known_.begin());
  return made;
}

}  // namespace tutti::machine
