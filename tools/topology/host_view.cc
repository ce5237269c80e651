#include "topology/host_view.h"

#include <algorithm>

#include "connect/layout.h"
#include "topo/host_devices.h"

namespace tutti::tool {
namespace {

using topo::NodeId;
using topo::NodeKind;

bool isHostDevice(const topo::Element& element) { return element.name == "hostdev"; }

std::vector<NodeId> ringOf(const topo::View& view) {
  const topo::System& system = view.system;
  std::vector<NodeId> byRank = system.all(NodeKind::Host);
  std::sort(byRank.begin(), byRank.end(), [&](NodeId a, NodeId b) { return system.at(a).host.rank < system.at(b).host.rank; });
  std::vector<connect::RankPlace> places;
  for (const NodeId device : byRank) {
    const topo::Node& cpu = system.at(system.at(system.at(device).links.front()).to);
    places.push_back({.host = topo::systemOf(cpu.id), .numa = static_cast<int32_t>(topo::localIdOf(cpu.id)), .cache = -1});
  }
  const connect::Layout layout =
      connect::Layout::byPlace(places, [&](int32_t, std::span<const int32_t> nodes) { return topo::orderNumaNodes(view.xml, nodes); });
  std::vector<NodeId> ring;
  for (int32_t i = 0; i < layout.ranks(); ++i) ring.push_back(byRank[static_cast<size_t>(layout.view(Rank(0)).ring.at(i).value)]);
  return ring;
}

}  // namespace

bool hasHostDevices(const topo::Document& machine) {
  return std::any_of(machine.root.children.begin(), machine.root.children.end(),
                     [](const topo::Element& cpu) { return std::any_of(cpu.children.begin(), cpu.children.end(), isHostDevice); });
}

Result<topo::View> hostViewOf(const topo::Document& machine, const FactsOptions& options, const std::optional<topo::CpuSet>& allowed) {
  topo::Document with = machine;
  if (options.hostDevices || !hasHostDevices(machine)) {
    const auto devices = topo::spreadHostDevices(machine, options.hostDevices.value_or(0), allowed);
    if (!devices) return tl::unexpected(devices.error());
    if (Status status = topo::addHostDevices(with, *devices); !status.ok()) return tl::unexpected(std::move(status));
  }
  return topo::makeHostView(with);
}

topo::Graphs hostGraphs(const topo::View& view) {
  topo::Graphs graphs;
  topo::ChannelSet& set = graphs[topo::GraphKind::Ring];
  const std::vector<NodeId> ring = ringOf(view);
  set.sameChannels = true;
  set.intraGBps = view.system.maxGBps;
  for (size_t i = 0; i < ring.size() && ring.size() > 1; ++i) {
    const topo::Path& hop = view.paths.get(ring[i], ring[(i + 1) % ring.size()]);
    set.intraGBps = std::min(set.intraGBps, hop.GBps);
    set.typeIntra = std::max(set.typeIntra, hop.type);
  }
  if (ring.size() < 2) set.intraGBps = topo::kLocalGBps;  // nobody to send to; a file of graphs wants a speed
  set.interGBps = set.intraGBps;
  set.channels.push_back({.gpus = ring});
  graphs.computed[0] = true;
  return graphs;
}

std::string showHostRing(const topo::View& view) {
  const topo::Graphs graphs = hostGraphs(view);
  const topo::ChannelSet& set = graphs[topo::GraphKind::Ring];
  std::string text = format("\nRing of their ranks: {} {:g} GB/s\n ", pathTypeName(set.typeIntra), set.intraGBps);
  for (const NodeId device : set.channels.front().gpus) text += format(" {}", view.system.at(device).host.rank);
  return text + "\n";
}

}  // namespace tutti::tool
