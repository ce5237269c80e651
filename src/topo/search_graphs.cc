#include <algorithm>
#include <utility>

#include "topo/reach.h"
#include "topo/search_field.h"

namespace tutti::topo {

std::string_view patternName(Pattern pattern) {
  switch (pattern) {
    case Pattern::BalancedTree: return "BALANCED_TREE";
    case Pattern::SplitTree: return "SPLIT_TREE";
    case Pattern::Tree: return "TREE";
    case Pattern::Ring: return "RING";
    case Pattern::Nvls: return "NVLS";
    case Pattern::CollnetDirect: return "COLLNET_DIRECT";
  }
  return "?";
}

float channelCeilingGBps(int sm, bool inter) {
  if (sm >= 100) return inter ? 96 : 90;
  if (sm >= 90) return inter ? 48 : 60;
  return inter ? 48 : 40;
}

int oldestSm(const System& system) {
  int oldest = 0;
  for (const NodeId gpu : system.all(NodeKind::Gpu)) {
    const int sm = system.at(gpu).gpu.sm;
    if (oldest == 0 || sm < oldest) oldest = sm;
  }
  return oldest;
}

void duplicateChannels(ChannelSet& set, int sm, int maxChannels) {
  if (set.channels.empty() || set.pattern == Pattern::Nvls || set.intraGBps < 25.0F) return;
  if (sm > 80 && set.intraGBps < 50.0F && set.count() > 4) return;
  const bool inPairs = set.pattern == Pattern::Ring && set.crossNic == CrossNic::InPairs;
  if (inPairs && set.count() % 2 == 1 && set.channels.back().netIn != set.channels.back().netOut) return;
  const int wanted = std::min(set.count() * 2, maxChannels);
  const int before = set.count();
  if (wanted == before) return;
  for (int c = before; c < wanted; ++c) set.channels.push_back(set.channels[static_cast<size_t>(c - before)]);
  set.intraGBps /= 2;
  set.interGBps /= 2;
}

namespace {

class GraphSearch {
 public:
  GraphSearch(const System& system, const Paths& paths, const GraphsRequest& request)
      : system_(system),
        paths_(paths),
        request_(request),
        sm_(oldestSm(system)),
        rings_(system, paths, false, false),
        trees_(system, paths, true, false) {}

  Result<Graphs> run() {
    if (Status status = ringAndTree(); !status.ok()) return tl::unexpected(std::move(status));
    const int channels = graphs_[GraphKind::Ring].count();
    if (request_.collnet) {
      const SearchRequest chain{.pattern = Pattern::Tree, .minChannels = channels, .maxChannels = channels, .collnet = true};
      const SearchRequest direct{.pattern = Pattern::CollnetDirect, .maxChannels = kMostChannels, .collnet = true};
      if (Status status = keep(GraphKind::CollnetChain, search(chain)); !status.ok()) return tl::unexpected(std::move(status));
      if (Status status = keep(GraphKind::CollnetDirect, search(direct)); !status.ok()) return tl::unexpected(std::move(status));
    }
    if (request_.nvls) {
      const SearchRequest nvls{.pattern = Pattern::Nvls, .maxChannels = kMostChannels};
      if (Status status = keep(GraphKind::Nvls, search(nvls)); !status.ok()) return tl::unexpected(std::move(status));
    }
    return std::move(graphs_);
  }

 private:
  Result<ChannelSet> search(SearchRequest one, int64_t parts = 1) {
    one.settings = request_.settings;
    one.settings.effort /= parts;
    if (!one.collnet && one.pattern == Pattern::Ring) return searchChannels(rings_, one);
    if (isTree(one.pattern) && (!one.collnet || allNetsReduce())) return searchChannels(trees_, one);
    return searchChannels(system_, paths_, one);
  }
  bool allNetsReduce() const {
    const auto& nets = system_.all(NodeKind::Net);
    return std::all_of(nets.begin(), nets.end(), [&](NodeId net) { return system_.at(net).net.coll; });
  }
  Status keep(GraphKind kind, Result<ChannelSet> found) {
    if (!found) return std::move(found).error();
    graphs_[kind] = *std::move(found);
    graphs_.computed[static_cast<size_t>(kind)] = true;
    return {};
  }
  Result<ChannelSet> tree(int channels) {
    return search({.pattern = Pattern::BalancedTree, .minChannels = channels, .maxChannels = channels});
  }

  // Rings as fast as can be; of several numbers of channels that give the same, the one that serves trees best.
  Status ringAndTree() {
    SearchRequest request;
    if (isSplitNvLink(system_, paths_)) request.minChannels = 2;  // trees between two islands need both directions
    Result<ChannelSet> ring = search(request);
    if (!ring && request.minChannels > 1) {
      request.minChannels = 1;
      ring = search(request);
    }
    if (!ring) return std::move(ring).error();
    const int first = ring->count();
    const float speed = ring->sumGBps();
    duplicateChannels(*ring, sm_, request.maxChannels);
    Result<ChannelSet> trees = tree(ring->count());
    if (!trees) return std::move(trees).error();
    int before = first;  // 2 is 1 + 1 and twice 1
    for (const int channels : {first + 1, 2 * first, first - 1}) {
      if (channels == std::exchange(before, channels)) continue;
      if (channels < request.minChannels || channels > request.maxChannels || !treesCouldGain(*trees)) continue;
      Result<ChannelSet> other = search({.minChannels = channels, .maxChannels = channels, .atLeastGBps = speed}, kShareOfOther);
      if (!other || other->channels.empty()) continue;
      duplicateChannels(*other, sm_, request.maxChannels);
      Result<ChannelSet> otherTrees = tree(other->count());
      // Twice the blocks have to bring a quarter more.
      const float worth = std::max(kWorth, 1 + 0.25F * (static_cast<float>(other->count()) / static_cast<float>(ring->count()) - 1));
      if (!otherTrees || otherTrees->sumGBps() < trees->sumGBps() * worth) continue;
      other->boundGBps = std::max(other->boundGBps, ring->boundGBps);
      ring = std::move(other);
      trees = std::move(otherTrees);
    }
    if (Status status = keep(GraphKind::Ring, std::move(ring)); !status.ok()) return status;
    return keep(GraphKind::Tree, std::move(trees));
  }

  // A chain spares each GPU the last hop; and in a host without nets it can use both directions of what parts two halves.
  bool treesCouldGain(const ChannelSet& trees) const {
    const float gpus = static_cast<float>(system_.count(NodeKind::Gpu));
    const float most = gpus < 2 ? 0 : system_.totalGBps * gpus / (gpus - 1);
    return !system_.inter && trees.sumGBps() * kWorth < most;
  }

  static constexpr float kWorth = 1.01F;
  static constexpr int64_t kShareOfOther = 4;  // of the effort, for another number of channels

  const System& system_;
  const Paths& paths_;
  const GraphsRequest& request_;
  int sm_;
  Field rings_;
  Field trees_;
  Graphs graphs_;
};

}  // namespace

Result<Graphs> searchGraphs(const System& system, const Paths& paths, const GraphsRequest& request) {
  return GraphSearch(system, paths, request).run();
}

}  // namespace tutti::topo
