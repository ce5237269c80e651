// Direct reduce: every rank gives its contribution to the root, which combines them in rank order.
//
// One flight of latency; all the work is the root's. The bits are those of one-shot and two-shot all-reduce, whatever the root.
#pragma once

#include "algo/direct.h"

namespace tutti::algo {

struct DirectReduce {
  static constexpr Traits kTraits{
      .name = "direct",
      .collective = Collective::Reduce,
      .needs = Needs::PeerMemory,
      .division = Division::Shares,
      .order = Order::RankAtOnce,
      .lends = true,
  };
  static TUTTI_HD int32_t chunks(int32_t) { return 1; }
  static TUTTI_HD int32_t lanes(int32_t) { return 1; }

  template <class Lane>
    requires PeerMemory<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t) {
    lane.store(in(0), view.root);
    // Everybody arrives everywhere, or the banks could not be used again without a barrier.
    for (int32_t step = 1; step < view.ranks; ++step) lane.arrive(rankAfter(view, step));
    for (int32_t step = 1; step < view.ranks; ++step) lane.await(rankAfter(view, step));
    if (view.rank == view.root) lane.loadReduce(out(0));
  }

  template <class Sum>
  static auto order(Sum& sum, int32_t, const LayoutView* ranks) {
    return sum.addRanks(ranks[0].ranks);
  }
};

}  // namespace tutti::algo
