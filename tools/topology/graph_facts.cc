#include "topology/graph_facts.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "connect/nodes.h"
#include "connect/p2p_channels.h"
#include "topo/feasible.h"
#include "topo/graph_xml.h"
#include "topology/host_view.h"

namespace tutti::tool {
namespace {

using Json = nlohmann::ordered_json;
using topo::ChannelSet;
using topo::GraphKind;
using topo::NodeId;
using topo::View;

constexpr int kRingChannels = 32;

bool canNvls(const topo::System& system) {
  return system.count(topo::NodeKind::NvSwitch) > 0 && topo::oldestSm(system) >= 90 && system.count(topo::NodeKind::Gpu) > 1;
}

std::string netName(const topo::System& system, NodeId net) {
  return format("{}.{}", topo::systemOf(system.at(net).id), system.at(net).net.dev);
}

/// Links that all channels pass, as the reference counts them.
int hopsOf(const View& view, const ChannelSet& set) {
  int hops = 0;
  const auto add = [&](NodeId from, NodeId to) { hops += static_cast<int>(view.paths.links(from, to).size()); };
  for (const topo::Channel& channel : set.channels) {
    for (size_t i = 0; i + 1 < channel.gpus.size(); ++i) add(channel.gpus[i], channel.gpus[i + 1]);
    if (channel.netIn == topo::kNoNode) {
      if (set.pattern == topo::Pattern::Ring) add(channel.gpus.back(), channel.gpus.front());
      continue;
    }
    add(channel.netIn, channel.gpus.front());
    add(set.pattern == topo::Pattern::Ring ? channel.gpus.back() : channel.gpus.front(), channel.netOut);
    if (set.pattern == topo::Pattern::BalancedTree && channel.gpus.size() > 1) add(channel.gpus[1], channel.netOut);
  }
  return hops;
}

Json channelsOf(const View& view, const ChannelSet& set) {
  Json all = Json::array();
  for (const topo::Channel& channel : set.channels) {
    Json one = {{"gpus", Json::array()}};
    for (const NodeId gpu : channel.gpus) one["gpus"].push_back(view.system.at(gpu).gpu.rank);
    if (channel.netIn != topo::kNoNode) {
      one["netIn"] = netName(view.system, channel.netIn);
      one["netOut"] = netName(view.system, channel.netOut);
    }
    all.push_back(std::move(one));
  }
  return all;
}

Json graphFacts(const View& view, const topo::Graphs& graphs, GraphKind kind) {
  const ChannelSet& set = graphs[kind];
  if (!graphs.computed[static_cast<size_t>(kind)]) return {{"computed", false}};
  const int gpus = view.system.count(topo::NodeKind::Gpu);
  const int ring = graphs[GraphKind::Ring].count();
  const bool chain = kind == GraphKind::Tree || kind == GraphKind::CollnetChain;
  const int heads = std::min(gpus, kind == GraphKind::Nvls ? kRingChannels : 8);
  Json facts = {{"computed", true},
                {"id", static_cast<int>(kind)},
                {"pattern", static_cast<int>(set.pattern)},
                {"patternName", topo::patternName(set.pattern)}};
  facts.update({{"nChannels", set.count()}, {"bwIntra", rounded(set.intraGBps)}, {"bwInter", rounded(set.interGBps)}});
  facts["latencyInter"] = rounded(set.latencyInterUs);
  facts.update({{"typeIntra", topo::pathTypeName(set.typeIntra)}, {"typeInter", topo::pathTypeName(set.typeInter)}});
  facts.update({{"sameChannels", set.sameChannels ? 1 : 0}, {"crossNic", static_cast<int>(set.crossNic)}, {"nHops", hopsOf(view, set)}});
  facts["minChannels"] = chain ? ring : (kind == GraphKind::Nvls && !view.system.inter ? heads : 1);
  facts["maxChannels"] = chain ? ring : (kind == GraphKind::Ring ? kRingChannels : heads);
  facts["bound"] = rounded(set.boundGBps);
  // What the links carry when every hop carries data both ways, which their bandwidth does not limit here, nor in the reference.
  const topo::SearchRequest request{.pattern = set.pattern, .maxChannels = topo::kMostChannels};
  const topo::Feasibility load = checkChannels(view.system, view.paths, request, set);
  if (load.twoWayLink != topo::kNoLink) {
    const topo::Link& busiest = view.system.at(load.twoWayLink);
    facts["busiest"] = {
        {"link", {topo::nodeName(view.system, busiest.from), topo::linkTypeName(busiest.type), topo::nodeName(view.system, busiest.to)}},
        {"bw", rounded(busiest.GBps)},
        {"charged", rounded(load.loadGBps[static_cast<size_t>(load.twoWayLink.value)])},
        {"bothWays", rounded(load.twoWayLoad * busiest.GBps)}};
  }
  facts["channels"] = channelsOf(view, set);
  return facts;
}

Json treesOf(const connect::Channels& channels) {
  Json all = Json::array();
  for (const auto& tree : channels.trees) {
    Json up = Json::array();
    Json down = Json::array();
    for (const connect::TreeLinks& links : tree) {
      up.push_back(links.up);
      down.push_back(links.down);
    }
    all.push_back({{"up", std::move(up)}, {"down", std::move(down)}});
  }
  return all;
}

Json nvlsOf(const connect::Channels& channels) {
  Json all = Json::array();
  for (const auto& tree : channels.nvls) {
    Json ranks = Json::array();
    for (const connect::NvlsLinks& links : tree) {
      const int own = channels.nodes > 1 && links.head >= 0 ? channels.ranks + 1 + links.head : -1;
      ranks.push_back(
          {{"nHeads", channels.nvlsHeads}, {"headRank", links.head}, {"treeUp", links.treeUp}, {"treeDown", {own, links.treeDown[0]}}});
    }
    all.push_back(std::move(ranks));
  }
  return all;
}

/// How many blocks NVLS runs with; fewer suffice where Blackwell stays in one NVLink domain.
int nvlsChannels(const topo::System& system, const connect::Channels& channels) {
  if (channels.nvlsHeads == 0) return 0;
  if (topo::oldestSm(system) < 100) return 16;
  return channels.nodes > 1 ? 32 : 24;
}

Json finalFacts(const View& view, const connect::Channels& channels) {
  const connect::P2pChannels p2p = connect::p2pChannels(view.system, view.paths, channels.count());
  Json facts = {{"nNodes", channels.nodes}, {"nChannels", channels.count()}, {"collChannels", channels.count()}};
  facts["nvlsChannels"] = nvlsChannels(view.system, channels);
  facts.update({{"p2pChannels", p2p.all}, {"p2pChannelsPerPeer", p2p.perPeer}});
  facts.update({{"collnetEnabled", channels.collnet ? 1 : 0}, {"nvlsSupport", channels.nvlsHeads > 0 ? 1 : 0}});
  facts["maxTreePattern"] = static_cast<int>(channels.treePattern);
  facts["ringsFromRank0"] = channels.rings;
  facts["trees"] = treesOf(channels);
  if (channels.nvlsHeads > 0) facts["nvls"] = nvlsOf(channels);
  return facts;
}

}  // namespace

Result<topo::Graphs> graphsOf(const View& view, const FactsOptions& options, const GraphFactsOptions& graphs) {
  topo::GraphsRequest request{.collnet = options.isCollNet, .nvls = canNvls(view.system)};
  request.settings.crossNic = graphs.crossNic;
  if (graphs.graphFile.empty()) return topo::findGraphs(nullptr, view.system, view.paths, request);
  const auto file = topo::readXml(graphs.graphFile);
  if (!file) return tl::unexpected(file.error());
  return topo::findGraphs(&*file, view.system, view.paths, request);
}

Result<std::vector<connect::NodeGraphs>> nodesOf(const topo::Document& machine, const FactsOptions& options,
                                                 const GraphFactsOptions& graphs, const topo::Graphs& firstNode) {
  auto request = topo::identicalNodes(machine, options.nodes, options.isClique, options.gpus);
  if (!request) return tl::unexpected(std::move(request).error());
  request->collNets = options.isCollNet;
  request->settings = options.settings;
  const int ranks = request->ranks;
  const size_t known = static_cast<size_t>(options.isClique ? ranks : ranks / options.nodes);
  bool isFirst = true;
  auto found = connect::findNodes(machine, *std::move(request), [&](const View& view) -> Result<topo::Graphs> {
    return std::exchange(isFirst, false) ? firstNode : graphsOf(view, options, graphs);
  });
  if (!found) return found;
  std::vector<connect::NodeGraphs> nodes = *std::move(found);

  const size_t perHost = nodes.size();
  for (int host = 1; static_cast<size_t>(host) * known < static_cast<size_t>(ranks); ++host) {
    for (size_t i = 0; i < perHost; ++i) {
      std::vector<int32_t> own = nodes[i].ranks;
      for (int32_t& rank : own) rank += host * static_cast<int32_t>(known);
      nodes.push_back(connect::renumbered(nodes[i], std::move(own)));
    }
  }
  return nodes;
}

Result<topo::Graphs> addGraphFacts(Json& run, const topo::Document& machine, const View& view, const FactsOptions& options,
                                   const GraphFactsOptions& graphs) {
  const auto begin = std::chrono::steady_clock::now();
  auto found = graphsOf(view, options, graphs);
  if (!found) return found;
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  for (const auto& [name, kind] :
       {std::pair{"ring", GraphKind::Ring}, std::pair{"tree", GraphKind::Tree}, std::pair{"collnetChain", GraphKind::CollnetChain},
        std::pair{"collnetDirect", GraphKind::CollnetDirect}, std::pair{"nvls", GraphKind::Nvls}}) {
    run["graphs"][name] = graphFacts(view, *found, kind);
  }
  run["timing_ms"]["graphs"] = ms;
  const auto nodes = nodesOf(machine, options, graphs, *found);
  if (!nodes) return tl::unexpected(nodes.error());
  const auto channels =
      connect::connectNodes(*nodes, {.fewest = graphs.minChannels, .most = graphs.maxChannels, .collnet = options.isCollNet});
  if (!channels) return tl::unexpected(channels.error());
  run["final"] = finalFacts(view, *channels);
  run["topoFlags"]["nvlsSupport"] = run["final"]["nvlsSupport"];
  return found;
}

Result<topo::Graphs> addHostGraphFacts(Json& run, const View& view) {
  topo::Graphs graphs = hostGraphs(view);
  const ChannelSet& ring = graphs[GraphKind::Ring];
  Json order = Json::array();
  for (const NodeId device : ring.channels.front().gpus) order.push_back(view.system.at(device).host.rank);
  run["graphs"]["ring"] = {{"computed", true},
                           {"id", 0},
                           {"pattern", static_cast<int>(ring.pattern)},
                           {"patternName", topo::patternName(ring.pattern)},
                           {"nChannels", 1},
                           {"bwIntra", rounded(ring.intraGBps)},
                           {"typeIntra", topo::pathTypeName(ring.typeIntra)},
                           {"channels", {{{"hosts", order}}}}};
  // As communicators begin them: with rank 0.
  std::rotate(order.begin(), std::find(order.begin(), order.end(), 0), order.end());
  run["final"] = {{"nNodes", 1}, {"ringsFromRank0", {order}}};
  return graphs;
}

std::span<const std::string_view> graphVariables() {
  static constexpr std::string_view kNames[] = {"NCCL_CROSS_NIC", "NCCL_GRAPH_FILE", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"};
  return kNames;
}

Status applyGraphVariables(const std::vector<std::pair<std::string, std::string>>& variables, GraphFactsOptions& graphs) {
  struct Number {
    const char* name;
    int* target;
    int most;
  };
  for (const auto& [name, value] : variables) {
    if (name == "NCCL_GRAPH_FILE") graphs.graphFile = value;
    for (const Number& number :
         {Number{"NCCL_CROSS_NIC", &graphs.crossNic, 2}, Number{"NCCL_MIN_NCHANNELS", &graphs.minChannels, topo::kMostChannels},
          Number{"NCCL_MAX_NCHANNELS", &graphs.maxChannels, topo::kMostChannels}}) {
      if (name != number.name || value.empty()) continue;
      char* end = nullptr;
      const long given = std::strtol(value.c_str(), &end, 10);
      if (*end != '\0' || given < 0 || given > number.most)
        return error(Code::InvalidArgument, "{}=\"{}\": expected a whole number from 0 to {}", name, value, number.most);
      *number.target = static_cast<int>(given);
    }
  }
  if (graphs.minChannels > 0 && graphs.maxChannels > 0 && graphs.minChannels > graphs.maxChannels)
    return error(Code::InvalidArgument, "NCCL_MIN_NCHANNELS={} is more than NCCL_MAX_NCHANNELS={}", graphs.minChannels, graphs.maxChannels);
  return {};
}

}  // namespace tutti::tool
