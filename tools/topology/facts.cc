#include "topology/facts.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "topo/reach.h"
#include "topo/settings.h"

namespace tutti::tool {
namespace {

using Json = nlohmann::ordered_json;
using topo::NodeId;
using topo::NodeKind;
using topo::Path;
using topo::System;
using topo::View;

constexpr int kShownChannels = 8;

Json linksOf(const System& system) {
  Json all = Json::object();
  for (const NodeKind kind : topo::kAllNodeKinds) {
    for (const NodeId node : system.all(kind)) {
      Json links = Json::array();
      for (const topo::LinkId id : system.at(node).links) {
        const topo::Link& link = system.at(id);
        links.push_back({topo::linkTypeName(link.type), rounded(link.GBps), topo::nodeName(system, link.to)});
      }
      all[topo::nodeName(system, node)] = std::move(links);
    }
  }
  return all;
}

Json nodesOf(const System& system, NodeKind kind) {
  Json all = Json::array();
  for (const NodeId id : system.all(kind)) {
    const topo::Node& node = system.at(id);
    Json facts = {{"node", topo::nodeName(system, id)}};
    if (kind == NodeKind::Gpu) {
      facts.update({{"rank", node.gpu.rank}, {"dev", node.gpu.dev}, {"sm", node.gpu.sm}, {"gdr", node.gpu.gdr ? 1 : 0}});
      facts["busid"] = topo::busIdText(node.id);
    } else if (kind == NodeKind::Net) {
      facts.update({{"dev", node.net.dev}, {"bw", rounded(node.net.GBps)}, {"latency", rounded(node.net.latencyUs)}});
      facts.update({{"gdr", node.net.gdr ? 1 : 0}, {"coll", node.net.coll ? 1 : 0}, {"port", node.net.port}});
      if (!node.net.members.empty()) facts["devs"] = node.net.members;
      facts["localGpuRank"] = node.net.localGpu == topo::kNoNode ? -1 : system.at(node.net.localGpu).gpu.rank;
    } else if (kind == NodeKind::Host) {
      facts.update({{"rank", node.host.rank}, {"dev", node.host.dev}, {"cpus", node.host.cpus}});
    } else {
      facts.update({{"arch", static_cast<int>(node.cpu.arch)}, {"vendor", static_cast<int>(node.cpu.vendor)}});
      facts["model"] = static_cast<int>(node.cpu.model);
      if (node.cpu.memoryMiB > 0) facts["memoryMiB"] = node.cpu.memoryMiB;
      for (const topo::NumaDistance& one : node.cpu.distances) facts["distances"][format("{}", one.numa)] = one.distance;
    }
    all.push_back(std::move(facts));
  }
  return all;
}

Json systemOf(const System& system) {
  Json counts = Json::object();
  for (const NodeKind kind : topo::kAllNodeKinds) {
    if (kind != NodeKind::Host || system.count(kind) > 0) counts[std::string(topo::nodeKindName(kind))] = system.count(kind);
  }
  Json facts = {{"maxBw", rounded(system.maxGBps)},          {"totalBw", rounded(system.totalGBps)},
          {"inter", system.inter ? 1 : 0},              {"nHosts", system.hostHashes.size()},
          {"counts", std::move(counts)},                {"gpus", nodesOf(system, NodeKind::Gpu)},
          {"nets", nodesOf(system, NodeKind::Net)},     {"cpus", nodesOf(system, NodeKind::Cpu)},
          {"links", linksOf(system)}};
  if (system.count(NodeKind::Host) > 0) facts["hosts"] = nodesOf(system, NodeKind::Host);
  return facts;
}

std::string viaOf(const View& view, const Path& path) {
  std::string via;
  const auto links = view.paths.links(path);
  for (size_t i = 0; i + 1 < links.size(); ++i) {
    if (i > 0) via += ' ';
    via += topo::nodeName(view.system, view.system.at(links[i]).to);
  }
  return via;
}

Json pathsBetween(const View& view, NodeKind from, NodeKind to, bool showsVia) {
  Json all = Json::object();
  for (const NodeId start : view.system.all(from)) {
    Json row = Json::object();
    for (const NodeId end : view.system.all(to)) {
      const Path& path = view.paths.get(start, end);
      Json facts = {{"type", topo::pathTypeName(path.type)}, {"bw", rounded(path.GBps)}, {"hops", path.count}};
      if (showsVia) facts["via"] = viaOf(view, path);
      row[topo::nodeName(view.system, end)] = std::move(facts);
    }
    all[topo::nodeName(view.system, start)] = std::move(row);
  }
  return all;
}

Json pathsOf(const View& view) {
  Json all = {{"gpu_gpu", pathsBetween(view, NodeKind::Gpu, NodeKind::Gpu, true)},
              {"gpu_net", view.system.count(NodeKind::Net) == 0 ? Json::object() : pathsBetween(view, NodeKind::Gpu, NodeKind::Net, true)},
              {"net_gpu", pathsBetween(view, NodeKind::Net, NodeKind::Gpu, false)},
              {"gpu_cpu", pathsBetween(view, NodeKind::Gpu, NodeKind::Cpu, false)},
              {"net_cpu", pathsBetween(view, NodeKind::Net, NodeKind::Cpu, false)}};
  if (view.system.count(NodeKind::NvSwitch) > 0) all["gpu_nvs"] = pathsBetween(view, NodeKind::Gpu, NodeKind::NvSwitch, false);
  if (view.system.count(NodeKind::Host) > 0) {
    all["host_host"] = pathsBetween(view, NodeKind::Host, NodeKind::Host, true);
    all["host_net"] = pathsBetween(view, NodeKind::Host, NodeKind::Net, true);
    all["host_cpu"] = pathsBetween(view, NodeKind::Host, NodeKind::Cpu, false);
  }
  return all;
}

Json gdrOf(const View& view, const topo::PathSettings& settings) {
  Json all = Json::object();
  if (view.system.count(NodeKind::Net) == 0) return all;
  for (const NodeId gpu : view.system.all(NodeKind::Gpu)) {
    Json row = Json::object();
    for (const NodeId net : view.system.all(NodeKind::Net)) {
      const auto modeOf = [&](bool send) { return static_cast<int>(topo::gdrMode(view.system, view.paths, settings, gpu, net, send)); };
      row[topo::nodeName(view.system, net)] = {modeOf(false), modeOf(true)};
    }
    all[topo::nodeName(view.system, gpu)] = std::move(row);
  }
  return all;
}

Json localNetsOf(const View& view, const topo::PathSettings& settings) {
  Json all = Json::object();
  for (const NodeId gpu : view.system.all(NodeKind::Gpu)) {
    Json row = Json::array();
    for (int channel = 0; channel < kShownChannels; ++channel) {
      const NodeId net = topo::localNet(view.system, view.paths, settings, gpu, channel);
      if (net != topo::kNoNode) row.push_back(view.system.at(net).net.dev);
    }
    if (!row.empty()) all[topo::nodeName(view.system, gpu)] = std::move(row);
  }
  return all;
}

}  // namespace

double rounded(float value) { return std::strtod(format("{:.6g}", value).c_str(), nullptr); }

Result<topo::View> viewOf(const topo::Document& machine, const FactsOptions& options) {
  auto request = topo::identicalNodes(machine, options.nodes, options.isClique, options.gpus);
  if (!request) return tl::unexpected(std::move(request).error());
  if (options.isCollNet) request->collNets = true;
  request->settings = options.settings;
  return topo::makeView(machine, *request);
}

nlohmann::ordered_json factsOf(const topo::View& view, const FactsOptions& options) {
  const int ranks = view.system.ranks;
  Json facts = {
      {"nodes", options.nodes}, {"gpusPerNode", view.system.count(NodeKind::Gpu) == 0 ? 0 : ranks / options.nodes}, {"ranks", ranks}};
  facts["mnnvl"] = options.isClique;
  facts["collnet"] = options.isCollNet;
  facts["nvmlP2pOk"] = options.settings.driverP2p;
  facts["viewOfRank"] = 0;
  facts["system"] = systemOf(view.system);
  facts["paths"] = pathsOf(view);
  if (view.system.count(NodeKind::Gpu) == 0) return facts;
  facts["topoFlags"] = {{"splitNvLink", topo::isSplitNvLink(view.system, view.paths) ? 1 : 0},
                        {"allNvLink", topo::isAllNvLink(view.system, view.paths) ? 1 : 0}};
  facts["gdr"] = gdrOf(view, options.settings);
  if (view.system.count(NodeKind::Net) > 0) facts["localNets_channels0to7"] = localNetsOf(view, options.settings);
  return facts;
}

}  // namespace tutti::tool
