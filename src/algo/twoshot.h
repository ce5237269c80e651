// Two-shot all-reduce: every rank collects and combines the contributions to its own chunk, then hands the result to every other.
//
// Two flights of latency, and every byte crosses a link twice, whatever the rank count: for messages between one-shot and ring. The
// sum is accumulated in the accumulation type, in rank order, and rounded once: the bits are those of one-shot, for every size.
#pragma once

#include "algo/direct.h"

namespace tutti::algo {

struct TwoShotAllReduce {
  static constexpr Traits kTraits{
      .name = "twoshot",
      .collective = Collective::AllReduce,
      .needs = Needs::PeerMemory,
      .division = Division::Shares,
      .order = Order::RankAtOnce,
      .rounds = 2,
      .lends = true,
      .places = true,
  };
  static TUTTI_HD int32_t chunks(int32_t ranks) { return ranks; }
  static TUTTI_HD int32_t lanes(int32_t) { return 1; }

  template <class Lane>
    requires PeerMemory<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t) {
    const int32_t own = view.rank.value;
    gatherContributions(lane, view, [](Rank peer) { return in(peer.value); });
    lane.loadReduce(out(own));
    lane.useRound(1);
    exchange(
        lane, view, [&](Rank) { return out(own); }, [](Rank peer) { return out(peer.value); });
  }

  template <class Sum>
  static auto order(Sum& sum, int32_t, const LayoutView* ranks) {
    return sum.addRanks(ranks[0].ranks);
  }
};

}  // namespace tutti::algo
