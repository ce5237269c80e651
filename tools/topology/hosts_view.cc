#include "topology/hosts_view.h"

#include <algorithm>
#include <vector>

#include "machine/hosts_layout.h"
#include "machine/show.h"

namespace tutti::tool {
namespace {

using topo::NodeId;
using topo::NodeKind;

/// Of the first host, by rank.
std::vector<machine::RankOnHost> ranksOf(const topo::View& view) {
  const topo::System& system = view.system;
  std::vector<machine::RankOnHost> ranks;
  for (const NodeId gpu : system.all(NodeKind::Gpu)) ranks.push_back({system.at(gpu).gpu.rank, system.at(gpu).gpu.dev, -1, -1});
  for (const NodeId device : system.all(NodeKind::Host)) {
    machine::RankOnHost& rank = ranks.emplace_back(machine::RankOnHost{.rank = system.at(device).host.rank});
    for (const topo::LinkId link : system.at(device).links) {
      const topo::Node& above = system.at(system.at(link).to);
      if (above.kind == NodeKind::Cpu) rank.numa = static_cast<int32_t>(topo::localIdOf(above.id));
    }
  }
  std::sort(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return ranks;
}

}  // namespace

std::string showHosts(const topo::Document& machine, const topo::View& view, const FactsOptions& options, const GraphFactsOptions& graphs) {
  machine::Settings settings;
  settings.paths = options.settings;
  settings.search.crossNic = graphs.crossNic;
  const std::string title = format("\nRings over {} such hosts", options.nodes);
  if (!graphs.graphFile.empty()) {
    auto file = topo::readXml(graphs.graphFile);
    if (!file) return format("{}: none: {}\n", title, file.error().text());
    settings.graphs = *std::move(file);
  }
  const std::vector<machine::RankOnHost> ranks = ranksOf(view);
  std::vector<machine::HostRanks> hosts;
  std::vector<int32_t> hostOf;
  for (int32_t host = 0; host < options.nodes; ++host) {
    machine::HostRanks& made = hosts.emplace_back(machine::HostRanks{&machine, 1, {}});
    for (machine::RankOnHost rank : ranks) {
      rank.rank = static_cast<int32_t>(hostOf.size());
      made.ranks.push_back(rank);
      hostOf.push_back(host);
    }
  }
  const auto found = machine::findHostsLayout(hosts, settings);
  if (!found) return format("{}: none: {}\n", title, found.error().text());
  std::string text = title + "; where they cross: rank[net]\n";
  for (const auto& lines : {machine::describeRings(found->layout), machine::describeNets(found->layout, hostOf)})
    for (const std::string& line : lines) text += "  " + line + "\n";
  return text;
}

}  // namespace tutti::tool
