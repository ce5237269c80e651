#include "machine/show.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/format.h"

namespace tutti::machine {

std::vector<std::string> describe(const GpuLayout& found) {
  const topo::System& system = found.view.system;
  std::vector<std::string> lines;
  lines.push_back(format("topology: {} GPUs, {} NVSwitches, {} PCI switches, {} CPUs; best path {:g} GB/s{}",
                         system.count(topo::NodeKind::Gpu), system.count(topo::NodeKind::NvSwitch), system.count(topo::NodeKind::Pci),
                         system.count(topo::NodeKind::Cpu), system.maxGBps, found.isUniform ? ", all GPUs equally near" : ""));
  lines.emplace_back("graph  pattern        channels  GB/s each  GB/s in all  bound  paths");
  for (const auto& [name, kind] : {std::pair{"ring", topo::GraphKind::Ring}, std::pair{"tree", topo::GraphKind::Tree}}) {
    const topo::ChannelSet& set = found.graphs[kind];
    lines.push_back(format("{:<6} {:<14} {:>8} {:>10.1f} {:>12.1f} {:>6} {:>6}", name, topo::patternName(set.pattern), set.count(),
                           std::min(set.intraGBps, set.interGBps), set.sumGBps(), set.boundGBps > 0 ? format("{:.1f}", set.boundGBps) : "-",
                           topo::pathTypeName(set.typeIntra)));
  }
  return lines;
}

std::string describePlaces(std::span<const connect::RankPlace> places) {
  std::map<std::pair<int32_t, int32_t>, std::string> ranksAt;
  std::set<int32_t> hosts;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    ranksAt[{places[rank].host, places[rank].numa}] += format(" {}", rank);
    hosts.insert(places[rank].host);
  }
  std::string text = "host devices:";
  std::string_view cut = " ranks";
  for (const auto& [place, ranks] : ranksAt) {
    text += format("{}{} on {}", cut, ranks, place.second < 0 ? "no single NUMA node" : format("NUMA node {}", place.second));
    if (hosts.size() > 1) text += format(" of host {}", place.first);
    cut = ",";
  }
  return text;
}

std::vector<std::string> describeRings(const connect::Layout& layout) {
  std::vector<std::string> lines;
  for (int32_t track = 0; track < layout.tracks(); ++track) {
    std::string& text = lines.emplace_back(format("Channel {:02}/{:02} :", track, layout.tracks()));
    const algo::LayoutView view = layout.view(Rank(0), Rank(0), ChannelId(track));
    for (int32_t i = 0; i < layout.ranks(); ++i) text += format(" {}", view.ring.at(i).value);
  }
  return lines;
}

std::vector<std::string> describeNets(const connect::Layout& layout, std::span<const int32_t> hostOf) {
  std::vector<std::string> lines;
  for (int32_t track = 0; track < layout.tracks(); ++track) {
    std::string& text = lines.emplace_back(format("Channel {:02}/{:02} crosses hosts at", track, layout.tracks()));
    const algo::LayoutView view = layout.view(Rank(0), Rank(0), ChannelId(track));
    for (int32_t i = 0; i < layout.ranks(); ++i) {
      const Rank from = view.ring.at(i);
      const Rank to = view.ring.at((i + 1) % layout.ranks());
      if (hostOf[static_cast<size_t>(from.value)] == hostOf[static_cast<size_t>(to.value)]) continue;
      text += format(" {}[{}]>{}[{}]", from.value, layout.netsOf(from, ChannelId(track)).out, to.value,
                     layout.netsOf(to, ChannelId(track)).in);
    }
  }
  return lines;
}

std::string describeTrees(const connect::Layout& layout, Rank rank) {
  std::string text = "Trees";
  for (int32_t track = 0; track < layout.tracks(); ++track) {
    const algo::LayoutView view = layout.view(rank, Rank(0), ChannelId(track));
    for (int32_t t = 0; t < algo::kTrees; ++t) {
      const algo::Tree& tree = view.tree[t];
      const auto child = [&](int32_t i) { return i < tree.children.count ? tree.children.at(i).value : -1; };
      text += format(" [{}] {}/{}/{}->{}->{}", track * algo::kTrees + t, child(0), child(1), child(2), rank.value, tree.parent.value);
    }
  }
  return text;
}

}  // namespace tutti::machine
