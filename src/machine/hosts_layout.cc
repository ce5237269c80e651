#include "machine/hosts_layout.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "connect/nodes.h"
#include "core/format.h"
#include "machine/host_layout.h"
#include "topo/graph_xml.h"
#include "topo/reach.h"

namespace tutti::machine {
namespace {

using connect::NetUse;
using connect::NodeGraphs;
using topo::GraphKind;
using topo::NodeId;
using topo::NodeKind;

/// Ranks of a NUMA node, by their places in the host's list: those that share a cache beside each other.
struct Stop {
  int32_t numa = -1;
  std::vector<int32_t> members;
};

std::vector<Stop> stopsOf(const HostRanks& host) {
  std::vector<Stop> stops;
  const auto unknown = [](const RankOnHost& rank) { return rank.numa < 0; };
  const bool isOne = std::any_of(host.ranks.begin(), host.ranks.end(), unknown);  // where one may be anywhere, they are all in one place
  std::map<std::pair<int32_t, int32_t>, size_t> firstOf;                          // by NUMA node and cache: the first rank there
  for (size_t i = 0; i < host.ranks.size(); ++i) {
    const int32_t numa = isOne ? -1 : host.ranks[i].numa;
    auto stop = std::find_if(stops.begin(), stops.end(), [numa](const Stop& known) { return known.numa == numa; });
    if (stop == stops.end()) stop = stops.insert(stops.end(), Stop{numa, {}});
    stop->members.push_back(static_cast<int32_t>(i));
    firstOf.try_emplace({host.ranks[i].numa, host.ranks[i].cache}, i);
  }
  for (Stop& stop : stops) {
    std::stable_sort(stop.members.begin(), stop.members.end(), [&](int32_t a, int32_t b) {
      const auto first = [&](int32_t i) {
        return firstOf.at({host.ranks[static_cast<size_t>(i)].numa, host.ranks[static_cast<size_t>(i)].cache});
      };
      return first(a) < first(b);
    });
  }
  return stops;
}

/// Numbers that no GPU of a file has.
constexpr int kFirstStopDev = 1 << 19;

/// The machine with a GPU in the place of each stop: faster than any net, with GPUDirect RDMA, so that only nets and what leads to them
/// decide.
Result<topo::Document> withStops(const topo::Document& machine, std::span<const Stop> stops) {
  topo::Document made = machine;
  for (size_t s = 0; s < stops.size(); ++s) {
    const auto cpu = std::find_if(made.root.children.begin(), made.root.children.end(), [&](const topo::Element& element) {
      const std::string* const numa = element.find("numaid");
      return element.name == "cpu" && (stops[s].numa < 0 || (numa != nullptr && *numa == format("{}", stops[s].numa)));
    });
    if (cpu == made.root.children.end())
      return fail(Code::InvalidUsage, "{}: there is no <cpu numaid=\"{}\">, on which ranks run", machine.file, stops[s].numa);
    topo::Element pci;
    pci.name = "pci";
    pci.set("busid", format("ffff:{:02x}:{:02x}.0", s >> 8, s & 0xff));
    pci.set("class", "0x030200");
    pci.set("link_speed", "64.0 GT/s PCIe");
    pci.set("link_width", "16");
    topo::Element gpu;
    gpu.name = "gpu";
    gpu.set("dev", format("{}", kFirstStopDev + static_cast<int>(s)));
    gpu.set("sm", "80");
    gpu.set("gdr", "1");
    pci.children.push_back(std::move(gpu));
    cpu->children.push_back(std::move(pci));
  }
  return made;
}

/// A virtual net stands for several devices, which channels take in turn.
int32_t deviceOf(const topo::System& system, NodeId net, int channel) {
  const topo::NetInfo& info = system.at(net).net;
  return info.members.empty() ? info.dev : info.members[static_cast<size_t>(channel) % info.members.size()];
}

/// Of one node, by channel of its rings.
struct NodeNets {
  std::vector<std::vector<int32_t>> near;  ///< Then by GPU in order of ranks: the one whose turn it is among the nearest.
  std::vector<NetUse> doors;               ///< What the ring comes in by at its first GPU, and leaves by at its last.
};

NodeNets netsOf(const topo::View& view, const topo::ChannelSet& rings, const topo::PathSettings& settings) {
  const topo::System& system = view.system;
  std::vector<NodeId> gpus = system.all(NodeKind::Gpu);
  std::sort(gpus.begin(), gpus.end(), [&](NodeId a, NodeId b) { return system.at(a).gpu.rank < system.at(b).gpu.rank; });
  NodeNets nets;
  for (int channel = 0; channel < rings.count(); ++channel) {
    const auto numberOf = [&](NodeId net) { return net == topo::kNoNode ? 0 : deviceOf(system, net, channel); };
    const topo::Channel& ring = rings.channels[static_cast<size_t>(channel)];
    nets.doors.push_back({numberOf(ring.netIn), numberOf(ring.netOut)});
    std::vector<int32_t>& near = nets.near.emplace_back();
    for (const NodeId gpu : gpus) near.push_back(numberOf(topo::localNet(system, view.paths, settings, gpu, channel)));
  }
  return nets;
}

struct FoundNodes {
  std::vector<NodeGraphs> nodes;
  std::vector<NodeNets> nets;  // of each
};

size_t placeIn(const std::vector<int32_t>& ranks, int32_t rank) {
  return static_cast<size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

void addDoors(NodeGraphs& node, const NodeNets& nets) {
  for (size_t channel = 0; channel < node.rings.size(); ++channel) {
    node.nets[channel][placeIn(node.ranks, node.rings[channel].front())].in = nets.doors[channel].in;
    node.nets[channel][placeIn(node.ranks, node.rings[channel].back())].out = nets.doors[channel].out;
  }
}

/// The nodes that GPUs of a document fall into. Ranks are places in `devs`.
Result<FoundNodes> findGpuNodes(const topo::Document& machine, uint64_t hash, std::span<const int> devs, const topo::PathSettings& paths,
                                const Settings& settings) {
  topo::ViewRequest request;
  request.hosts = {{.hostHash = hash, .gpus = {}}};
  request.ranks = static_cast<int>(devs.size()) + 1;  // there are others
  request.settings = paths;
  request.settings.netIntraDisabled = true;
  for (size_t i = 0; i < devs.size(); ++i) request.hosts[0].gpus.push_back({.dev = devs[i], .rank = static_cast<int>(i)});
  FoundNodes found;
  const auto graphsOf = [&](const topo::View& view) -> Result<topo::Graphs> {
    auto graphs = topo::findGraphs(settings.graphs ? &*settings.graphs : nullptr, view.system, view.paths,
                                   {.collnet = false, .nvls = false, .settings = settings.search});
    if (graphs) found.nets.push_back(netsOf(view, (*graphs)[GraphKind::Ring], request.settings));
    return graphs;
  };
  auto nodes = connect::findNodes(machine, request, graphsOf);
  if (!nodes) return tl::unexpected(std::move(nodes).error());
  found.nodes = *std::move(nodes);
  return found;
}

std::vector<NodeGraphs> withNets(FoundNodes found) {
  for (size_t n = 0; n < found.nodes.size(); ++n) {
    NodeGraphs& node = found.nodes[n];
    for (const std::vector<int32_t>& near : found.nets[n].near) {
      std::vector<NetUse>& uses = node.nets.emplace_back();
      for (const int32_t net : near) uses.push_back({net, net});
    }
    addDoors(node, found.nets[n]);
  }
  return std::move(found.nodes);
}

/// A node of stops becomes one of their ranks.
NodeGraphs withMembers(const NodeGraphs& node, const NodeNets& nets, std::span<const Stop> stops, size_t ranks) {
  NodeGraphs made;
  made.treePattern = topo::Pattern::Tree;
  made.crossNic = node.crossNic;
  made.sm = node.sm;
  for (size_t r = 0; r < ranks; ++r) made.ranks.push_back(static_cast<int32_t>(r));
  for (size_t channel = 0; channel < node.rings.size(); ++channel) {
    std::vector<int32_t>& ring = made.rings.emplace_back();
    std::vector<NetUse>& uses = made.nets.emplace_back(ranks);
    for (const int32_t stop : node.rings[channel]) {
      const std::vector<int32_t>& members = stops[static_cast<size_t>(stop)].members;
      for (size_t i = 0; i < members.size(); ++i) {
        const auto turn = channel + i;  // ranks of a place take different nets, and so do channels
        const int32_t net = nets.near[turn % nets.near.size()][placeIn(node.ranks, stop)];
        ring.push_back(members[turn % members.size()]);
        uses[static_cast<size_t>(ring.back())] = {net, net};
      }
    }
  }
  made.trees = made.rings;  // not used: host devices have trees over the ring
  addDoors(made, nets);
  return made;
}

/// Of one host; ranks are places in its list.
Result<std::vector<NodeGraphs>> findHostNodes(const HostRanks& host, bool onGpu, const Settings& settings) {
  std::vector<int> devs;
  if (onGpu) {
    for (const RankOnHost& rank : host.ranks) devs.push_back(rank.dev);
    auto found = findGpuNodes(*host.machine, host.hash, devs, settings.paths, settings);
    if (!found) return tl::unexpected(std::move(found).error());
    return withNets(*std::move(found));
  }
  const std::vector<Stop> stops = stopsOf(host);
  const auto machine = withStops(*host.machine, stops);
  if (!machine) return tl::unexpected(machine.error());
  for (size_t s = 0; s < stops.size(); ++s) devs.push_back(kFirstStopDev + static_cast<int>(s));
  topo::PathSettings paths;  // those about GPUs are none of host devices'
  paths.netsPerGpu = settings.paths.netsPerGpu;
  paths.pxnDisabled = true;
  Settings own;
  own.search = settings.search;
  const auto found = findGpuNodes(*machine, host.hash, devs, paths, own);
  if (!found) return tl::unexpected(found.error());
  if (found->nodes.size() != 1) return fail(Code::InternalError, "{}: NUMA nodes that do not reach each other", host.machine->file);
  return std::vector<NodeGraphs>{withMembers(found->nodes.front(), found->nets.front(), stops, host.ranks.size())};
}

void addNets(const topo::Element& element, std::vector<int32_t>& devs) {
  const std::string* const dev = element.name == "net" ? element.find("dev") : nullptr;
  if (dev != nullptr) devs.push_back(static_cast<int32_t>(std::strtol(dev->c_str(), nullptr, 0)));
  for (const topo::Element& child : element.children) addNets(child, devs);
}

/// Everything that makes two hosts alike.
std::vector<uint64_t> likenessOf(const HostRanks& host) {
  std::vector<uint64_t> key = {host.hash};
  for (const RankOnHost& rank : host.ranks)
    for (const int32_t part : {rank.dev, rank.numa, rank.cache}) key.push_back(static_cast<uint64_t>(part));
  return key;
}

}  // namespace

Result<HostsLayout> findHostsLayout(std::span<const HostRanks> hosts, const Settings& settings) {
  const bool onGpu = !hosts.empty() && !hosts.front().ranks.empty() && hosts.front().ranks.front().dev >= 0;
  HostsLayout found;
  std::map<std::vector<uint64_t>, std::vector<NodeGraphs>> known;
  std::vector<NodeGraphs> nodes;
  for (const HostRanks& host : hosts) {
    for (const RankOnHost& rank : host.ranks)
      if ((rank.dev >= 0) != onGpu) return fail(Code::InvalidUsage, "rank {} computes with another kind of device than rank 0", rank.rank);
    auto [place, isNew] = known.try_emplace(likenessOf(host));
    if (isNew) {
      auto own = findHostNodes(host, onGpu, settings);
      if (!own) return tl::unexpected(std::move(own).error());
      place->second = *std::move(own);
      ++found.searches;
    }
    for (const NodeGraphs& node : place->second) {
      std::vector<int32_t> ranks;
      for (const int32_t at : node.ranks) ranks.push_back(host.ranks[static_cast<size_t>(at)].rank);
      nodes.push_back(connect::renumbered(node, std::move(ranks)));
    }
  }
  auto channels = connect::connectNodes(nodes, {});
  if (!channels) return tl::unexpected(std::move(channels).error());
  found.channels = *std::move(channels);
  found.layout = onGpu ? connect::Layout::ofChannels(found.channels, nodes) : connect::Layout::ofNets(found.channels, nodes);
  return found;
}

Result<std::optional<HostsLayout>> findStatedLayout(std::span<const HostRanks> hosts, const topo::Document& graphs) {
  std::vector<NodeGraphs> nodes;
  for (const HostRanks& host : hosts) {
    std::vector<int32_t> nets;
    addNets(host.machine->root, nets);
    auto node = findHostNode(graphs, static_cast<int32_t>(host.ranks.size()), nets);
    if (!node) return tl::unexpected(Status(node.error()).at(format("the host of rank {}", host.ranks.front().rank)));
    const std::optional<NodeGraphs> stated = *std::move(node);
    if (!stated) return std::optional<HostsLayout>();
    std::vector<int32_t> ranks;
    for (const RankOnHost& rank : host.ranks) ranks.push_back(rank.rank);
    nodes.push_back(connect::renumbered(*stated, std::move(ranks)));
  }
  auto channels = connect::connectNodes(nodes, {});
  if (!channels) return tl::unexpected(std::move(channels).error());
  HostsLayout found;
  found.channels = *std::move(channels);
  found.layout = connect::Layout::ofChannels(found.channels, nodes);
  return std::optional(std::move(found));
}

}  // namespace tutti::machine
