// One-shot all-reduce: every rank gives its contribution to every other, then each combines all of them in rank order.
//
// One flight of latency, (ranks - 1) times the bytes: for small messages. The sum is accumulated in the accumulation type
// and rounded once, and does not depend on anything but the rank order.
#pragma once

#include "algo/direct.h"

namespace tutti::algo {

struct OneShotAllReduce {
  static constexpr Traits kTraits{"oneshot", Collective::AllReduce, Needs::PeerMemory, Division::Shares, Order::RankAtOnce};
  static TUTTI_HD int32_t chunks(int32_t) { return 1; }
  static TUTTI_HD int32_t lanes(int32_t) { return 1; }

  template <class Lane>
    requires PeerMemory<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t) {
    gatherContributions(lane, view, [](Rank) { return in(0); });
    lane.loadReduce(out(0));
  }

  template <class Sum>
  static auto order(Sum& sum, int32_t, const LayoutView* ranks) {
    return sum.addRanks(ranks[0].ranks);
  }
};

}  // namespace tutti::algo
