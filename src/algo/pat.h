// Parallel aggregated trees: all-gather and reduce-scatter in logarithmic depth, over pipes to ranks at doubling distances.
//
// Chunk c goes round a binomial tree rooted at rank c: the rank s places after c hears from s without its lowest bit, and passes on
// to s + 1, s + 2, s + 4 … below that bit. All ranks do the same for their own s, so the trees of all chunks run side by side and every
// link is busy. The order of s within a block of 2 kAtOnce is breadth first, which makes the depth logarithmic; blocks follow each other,
// which bounds what is under way in a pipe to kAtOnce messages. Reduce-scatter is the same backwards. (After the idea of Jeaugey, "PAT: a
// new algorithm for all-gather and reduce-scatter operations at scale", 2025.)
#pragma once

#include "algo/lane.h"
#include "algo/layout.h"
#include "algo/traits.h"

namespace tutti::algo {

struct Pat {
  static constexpr int32_t kAtOnce = 4;
  static constexpr uint8_t kPort = 4;

  /// The place of `s` in its tree.
  static TUTTI_HD int32_t lowestBit(int32_t s) { return s & -s; }
  static TUTTI_HD int32_t children(int32_t s, int32_t ranks) {
    int32_t count = 0;
    while ((int64_t{1} << count) < ranks - s && (s == 0 || (1 << count) < lowestBit(s))) ++count;
    return count;
  }
  static TUTTI_HD Rank rankAt(const LayoutView& view, int32_t offset) {
    return Rank((view.rank.value + offset + view.ranks) % view.ranks);
  }

  /// The i-th place of a block: bits reversed. Parents come before their children, and pipes keep the order of what they carry.
  static TUTTI_HD int32_t place(int32_t i) {
    int32_t reversed = 0;
    for (int32_t bit = 1; bit < kBlock; bit *= 2) reversed = 2 * reversed + ((i & bit) != 0 ? 1 : 0);
    return reversed;
  }
  /// Calls visit(s) for every s below `ranks`: blocks upwards, parents before children.
  template <class Visit>
  static TUTTI_HD void parentsFirst(int32_t ranks, Visit&& visit) {
    for (int32_t base = 0; base < ranks; base += kBlock)
      for (int32_t i = 0; i < kBlock; ++i)
        if (base + place(i) < ranks) visit(base + place(i));
  }
  /// The same backwards.
  template <class Visit>
  static TUTTI_HD void childrenFirst(int32_t ranks, Visit&& visit) {
    for (int32_t base = (ranks - 1) / kBlock * kBlock; base >= 0; base -= kBlock)
      for (int32_t i = kBlock - 1; i >= 0; --i)
        if (base + place(i) < ranks) visit(base + place(i));
  }

 private:
  static constexpr int32_t kBlock = 2 * kAtOnce;
};

struct PatAllGather {
  static constexpr Traits kTraits{"pat", Collective::AllGather, Needs::Pipe, Division::Blocks, Order::Layout, Pat::kAtOnce};
  static TUTTI_HD int32_t chunks(int32_t ranks) { return ranks; }
  static TUTTI_HD int32_t lanes(int32_t) { return 1; }

  template <class Lane>
    requires Pipe<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t) {
    lane.usePort(Pat::kPort);
    Pat::parentsFirst(view.ranks, [&](int32_t s) {
      const Peers onward = Peers::doubling(view.rank, view.ranks, Pat::children(s, view.ranks));
      const int32_t chunk = Pat::rankAt(view, -s).value;
      if (s == 0) return lane.copySend(in(0), out(chunk), onward);
      lane.recvCopySend(Pat::rankAt(view, -Pat::lowestBit(s)), out(chunk), onward);
    });
  }
};

struct PatReduceScatter {
  static constexpr Traits kTraits{"pat", Collective::ReduceScatter, Needs::Pipe, Division::Blocks, Order::Layout, Pat::kAtOnce};
  static TUTTI_HD int32_t chunks(int32_t ranks) { return ranks; }
  static TUTTI_HD int32_t lanes(int32_t) { return 1; }

  template <class Lane>
    requires Pipe<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t) {
    lane.usePort(Pat::kPort);
    Pat::childrenFirst(view.ranks, [&](int32_t s) {
      const Peers from = Peers::doubling(view.rank, view.ranks, Pat::children(s, view.ranks));
      const int32_t chunk = Pat::rankAt(view, -s).value;
      if (s == 0) return lane.recvReduceCopy(from, in(chunk), out(0));
      lane.recvReduceSend(from, in(chunk), Pat::rankAt(view, -Pat::lowestBit(s)));
    });
  }

  template <class Sum>
  static auto order(Sum& sum, int32_t chunk, const LayoutView* ranks) {
    return partial(sum, chunk, 0, ranks[0].ranks);
  }

 private:
  /// What the rank s places after the one that owns the chunk passes on.
  template <class Sum>
  static auto partial(Sum& sum, int32_t chunk, int32_t s, int32_t ranks) -> decltype(sum.leaf(Rank(0))) {
    return sum.addEach(1 + Pat::children(s, ranks), [&](int32_t i) {
      return i == 0 ? sum.leaf(Rank((chunk + s) % ranks)) : partial(sum, chunk, s + (1 << (i - 1)), ranks);
    });
  }
};

}  // namespace tutti::algo
