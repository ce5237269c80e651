// Direct algorithms: every rank reaches every other in one flight, through windows that all have mapped.
//
// Reductions combine in rank order, accumulated in the accumulation type and rounded once.
// A rank starts with the one after it, so that no two ranks store to the same peer at the same time.
#pragma once

#include "algo/lane.h"
#include "algo/layout.h"
#include "algo/traits.h"

namespace tutti::algo {

/// `places` from 0 to the number of ranks.
TUTTI_HD Rank rankAfter(const LayoutView& view, int32_t places) {
  const int32_t rank = view.rank.value + places;
  return Rank(rank < view.ranks ? rank : rank - view.ranks);
}

/// Every rank gives `contribution(peer)` to each peer, itself included; afterwards all that was meant for this rank is there.
template <class Lane, class Contribution>
TUTTI_HD void gatherContributions(Lane& lane, const LayoutView& view, Contribution&& contribution) {
  for (int32_t step = 1; step < view.ranks; ++step) {
    lane.store(contribution(rankAfter(view, step)), rankAfter(view, step));
    lane.arrive(rankAfter(view, step));
  }
  lane.store(contribution(view.rank), view.rank);
  for (int32_t step = 1; step < view.ranks; ++step) lane.await(rankAfter(view, step));
}

/// `give(peer)` puts what this rank has for a peer, `take(peer)` loads what the peer has put; either may do nothing. What a rank does for
/// itself, `meanwhile()`, keeps no peer waiting.
template <class Lane, class Give, class Meanwhile, class Take>
TUTTI_HD void meet(Lane& lane, const LayoutView& view, Give&& give, Meanwhile&& meanwhile, Take&& take) {
  for (int32_t step = 1; step < view.ranks; ++step) {
    give(rankAfter(view, step));
    lane.arrive(rankAfter(view, step));
  }
  meanwhile();
  for (int32_t step = view.ranks - 1; step > 0; --step) {  // the rank before this one has stored here first
    lane.await(rankAfter(view, step));
    take(rankAfter(view, step));
  }
}

/// Every rank puts `source(peer)` where each other peer finds it, and moves what it finds to `destination(peer)`.
template <class Lane, class Source, class Destination>
TUTTI_HD void exchange(Lane& lane, const LayoutView& view, Source&& source, Destination&& destination) {
  meet(
      lane, view, [&](Rank peer) { lane.put(source(peer), peer); }, [] {}, [&](Rank peer) { lane.load(peer, destination(peer)); });
}

struct DirectReduceScatter {
  static constexpr Traits kTraits{
      .name = "direct",
      .collective = Collective::ReduceScatter,
      .needs = Needs::PeerMemory,
      .division = Division::Blocks,
      .order = Order::RankAtOnce,
      .rounds = 1,
      .lends = true,
  };
  static TUTTI_HD int32_t chunks(int32_t ranks) { return ranks; }
  static TUTTI_HD int32_t lanes(int32_t) { return 1; }

  template <class Lane>
    requires PeerMemory<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t) {
    gatherContributions(lane, view, [](Rank peer) { return in(peer.value); });
    lane.loadReduce(out(0));
  }

  template <class Sum>
  static auto order(Sum& sum, int32_t, const LayoutView* ranks) {
    return sum.addRanks(ranks[0].ranks);
  }
};

struct DirectAllGather {
  static constexpr Traits kTraits{
      .name = "direct",
      .collective = Collective::AllGather,
      .needs = Needs::PeerMemory,
      .division = Division::Blocks,
      .lends = true,
  };
  static TUTTI_HD int32_t chunks(int32_t ranks) { return ranks; }
  static TUTTI_HD int32_t lanes(int32_t) { return 1; }

  template <class Lane>
    requires PeerMemory<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t) {
    const auto give = [&](Rank peer) { lane.put(in(0), peer); };
    const auto copyOwn = [&] { lane.copy(in(0), out(view.rank.value)); };
    const auto take = [&](Rank peer) { lane.load(peer, out(peer.value)); };
    meet(lane, view, give, copyOwn, take);
  }
};

struct DirectAllToAll {
  static constexpr Traits kTraits{
      .name = "direct",
      .collective = Collective::AllToAll,
      .needs = Needs::PeerMemory,
      .division = Division::Blocks,
      .lends = true,
  };
  static TUTTI_HD int32_t chunks(int32_t ranks) { return ranks; }
  static TUTTI_HD int32_t lanes(int32_t) { return 1; }

  template <class Lane>
    requires PeerMemory<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t) {
    const auto give = [&](Rank peer) { lane.put(in(peer.value), peer); };
    const auto copyOwn = [&] { lane.copy(in(view.rank.value), out(view.rank.value)); };
    const auto take = [&](Rank peer) { lane.load(peer, out(peer.value)); };
    meet(lane, view, give, copyOwn, take);
  }
};

}  // namespace tutti::algo
