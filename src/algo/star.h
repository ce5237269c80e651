// Stars: the root has to do with every other rank at once.
//
// Gather and scatter: they exchange one message each, on a lane of its own, so none waits for another. Lane d belongs to the rank d
// places after the root: the root handles all lanes, every other rank its own.
#pragma once

#include "algo/lane.h"
#include "algo/layout.h"
#include "algo/sendrecv.h"
#include "algo/traits.h"

namespace tutti::algo {

struct Star {
  /// The rank that lane `laneIndex` serves, and whether `view`'s rank has a part in it.
  static TUTTI_HD Rank spoke(const LayoutView& view, int32_t laneIndex) { return Rank((view.root.value + laneIndex) % view.ranks); }
  static TUTTI_HD bool takesPart(const LayoutView& view, int32_t laneIndex) {
    return view.rank == view.root || view.rank == spoke(view, laneIndex);
  }
};

struct StarGather {
  static constexpr Traits kTraits{"star", Collective::Gather, Needs::Pipe, Division::Blocks, Order::Layout, 1};
  static TUTTI_HD int32_t chunks(int32_t ranks) { return ranks; }
  static TUTTI_HD int32_t lanes(int32_t ranks) { return ranks; }

  template <class Lane>
    requires Pipe<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t laneIndex) {
    if (!Star::takesPart(view, laneIndex)) return;
    const Rank spoke = Star::spoke(view, laneIndex);
    lane.usePort(kMessagePort);
    if (spoke == view.root) return lane.copy(in(0), out(spoke.value));
    if (view.rank == spoke) return lane.send(in(0), view.root);
    lane.recvCopy(spoke, out(spoke.value));
  }
};

struct StarScatter {
  static constexpr Traits kTraits{"star", Collective::Scatter, Needs::Pipe, Division::Blocks, Order::Layout, 1};
  static TUTTI_HD int32_t chunks(int32_t ranks) { return ranks; }
  static TUTTI_HD int32_t lanes(int32_t ranks) { return ranks; }

  template <class Lane>
    requires Pipe<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t laneIndex) {
    if (!Star::takesPart(view, laneIndex)) return;
    const Rank spoke = Star::spoke(view, laneIndex);
    lane.usePort(kMessagePort);
    if (spoke == view.root) return lane.copy(in(spoke.value), out(0));
    if (view.rank == spoke) return lane.recvCopy(view.root, out(0));
    lane.send(in(spoke.value), spoke);
  }
};

/// All read what the root writes once: nobody passes anything on.
struct StarBroadcast {
  /// As many as a step sends to, and the root.
  static constexpr int32_t kMostAtOnce = 32;

  static constexpr Traits kTraits{
      .name = "star",
      .collective = Collective::Broadcast,
      .needs = Needs::Pipe,
      .division = Division::Shares,
      .fansOut = true,
      .mostAtOnce = kMostAtOnce,
  };
  static TUTTI_HD int32_t chunks(int32_t) { return 1; }
  static TUTTI_HD int32_t lanes(int32_t) { return 1; }

  template <class Lane>
    requires Pipe<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t) {
    if (view.rank != view.root) return lane.recvCopy(view.root, out(0));
    if (view.ranks == 1) return lane.copy(in(0), out(0));
    lane.copySend(in(0), out(0), Peers::others(view.root, view.ranks));
  }
};

}  // namespace tutti::algo
