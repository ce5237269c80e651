// Chains: ranks in a line, in rank order whatever the layout; each passes on to its neighbours what it has.
//
// Sums grow from rank 0 to the last one, so their bits depend on inputs, type and rank count alone, neither on layout nor root.
// Long messages flow through in slices; broadcast starts in both directions at once.
#pragma once

#include "algo/lane.h"
#include "algo/layout.h"
#include "algo/traits.h"

namespace tutti::algo {

template <class Sum>
auto chainOrder(Sum& sum, int32_t ranks) {
  auto value = sum.leaf(Rank(0));
  for (int32_t r = 1; r < ranks; ++r) value = sum.add(sum.leaf(Rank(r)), value);
  return value;
}

/// Up to the last rank, which has the sum first, and down again. Up and down are lanes, so that slices pass each other.
struct ChainAllReduce {
  static constexpr Traits kTraits{"chain", Collective::AllReduce, Needs::Pipe, Division::Shares, Order::RankHops};
  static TUTTI_HD int32_t chunks(int32_t) { return 1; }
  static TUTTI_HD int32_t lanes(int32_t) { return 2; }

  template <class Lane>
    requires Pipe<Lane> && HandOver<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t laneIndex) {
    const Rank self = view.rank;
    const Rank up(self.value + 1);
    const Rank down(self.value - 1);
    const bool isFirst = self.value == 0;
    const bool isLast = up.value == view.ranks;
    if (laneIndex == 0) {
      if (isFirst && isLast) return lane.reduceCopy(in(0), out(0));
      if (isFirst) return lane.contribute(in(0), up);
      if (!isLast) return lane.recvReduceSend(down, in(0), up);
      lane.recvReduceCopy(down, in(0), out(0));
      lane.give(1);
    } else if (isLast && !isFirst) {
      lane.take(0);
      lane.send(out(0), down);
    } else if (!isLast) {
      if (isFirst) return lane.recvCopy(up, out(0));
      lane.recvCopySend(up, out(0), down);
    }
  }

  template <class Sum>
  static auto order(Sum& sum, int32_t, const LayoutView* ranks) {
    return chainOrder(sum, ranks[0].ranks);
  }
};

/// The last rank sends the sum to the root, unless it is the root itself.
struct ChainReduce {
  static constexpr Traits kTraits{"chain", Collective::Reduce, Needs::Pipe, Division::Shares, Order::RankHops};
  static TUTTI_HD int32_t chunks(int32_t) { return 1; }
  static TUTTI_HD int32_t lanes(int32_t) { return 2; }

  template <class Lane>
    requires Pipe<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t laneIndex) {
    const int32_t self = view.rank.value;
    const int32_t last = view.ranks - 1;
    const bool isRoot = view.rank == view.root;
    if (laneIndex == 1) {
      if (isRoot && self != last) lane.recvCombineCopy(Rank(last), out(0));
      return;
    }
    if (last == 0) return lane.reduceCopy(in(0), out(0));
    if (self == 0) return lane.contribute(in(0), Rank(1));
    if (self < last) return lane.recvReduceSend(Rank(self - 1), in(0), Rank(self + 1));
    if (isRoot) return lane.recvReduceCopy(Rank(last - 1), in(0), out(0));
    lane.recvReduceSend(Rank(last - 1), in(0), view.root);
  }

  template <class Sum>
  static auto order(Sum& sum, int32_t, const LayoutView* ranks) {
    return chainOrder(sum, ranks[0].ranks);
  }
};

/// From the root to both ends of the line.
struct ChainBroadcast {
  static constexpr Traits kTraits{"chain", Collective::Broadcast, Needs::Pipe, Division::Shares};
  static TUTTI_HD int32_t chunks(int32_t) { return 1; }
  static TUTTI_HD int32_t lanes(int32_t) { return 1; }

  template <class Lane>
    requires Pipe<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t) {
    const int32_t self = view.rank.value;
    const int32_t side = self - view.root.value;  // below 0 before the root, above 0 after it
    Peers onward;
    if (side <= 0 && self > 0) onward.add(Rank(self - 1));
    if (side >= 0 && self < view.ranks - 1) onward.add(Rank(self + 1));
    const Rank before(side < 0 ? self + 1 : self - 1);
    if (side == 0) return lane.copySend(in(0), out(0), onward);
    lane.recvCopySend(before, out(0), onward);
  }
};

}  // namespace tutti::algo
