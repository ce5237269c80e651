// Direct broadcast, gather and scatter: what the root has or wants travels in one flight, through windows that all have mapped.
//
// Everybody arrives everywhere, also ranks that exchange nothing, or the banks could not be used again without a barrier: so the root waits
// until all have come to the call, and nobody goes on before.
#pragma once

#include "algo/direct.h"

namespace tutti::algo {

struct DirectBroadcast {
  static constexpr Traits kTraits{
      .name = "direct",
      .collective = Collective::Broadcast,
      .needs = Needs::PeerMemory,
      .division = Division::Shares,
      .lends = true,
      .detains = true,
  };
  static TUTTI_HD int32_t chunks(int32_t) { return 1; }
  static TUTTI_HD int32_t lanes(int32_t) { return 1; }

  template <class Lane>
    requires PeerMemory<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t) {
    const bool isRoot = view.rank == view.root;
    const auto give = [&](Rank peer) {
      if (isRoot) lane.put(in(0), peer);
    };
    const auto copyOwn = [&] {
      if (isRoot) lane.copy(in(0), out(0));
    };
    const auto take = [&](Rank peer) {
      if (peer == view.root) lane.load(peer, out(0));
    };
    meet(lane, view, give, copyOwn, take);
  }
};

struct DirectGather {
  static constexpr Traits kTraits{
      .name = "direct",
      .collective = Collective::Gather,
      .needs = Needs::PeerMemory,
      .division = Division::Blocks,
      .lends = true,
      .detains = true,
  };
  static TUTTI_HD int32_t chunks(int32_t ranks) { return ranks; }
  static TUTTI_HD int32_t lanes(int32_t) { return 1; }

  template <class Lane>
    requires PeerMemory<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t) {
    const bool isRoot = view.rank == view.root;
    const auto give = [&](Rank peer) {
      if (peer == view.root) lane.put(in(0), peer);
    };
    const auto copyOwn = [&] {
      if (isRoot) lane.copy(in(0), out(view.rank.value));
    };
    const auto take = [&](Rank peer) {
      if (isRoot) lane.load(peer, out(peer.value));
    };
    meet(lane, view, give, copyOwn, take);
  }
};

struct DirectScatter {
  static constexpr Traits kTraits{
      .name = "direct",
      .collective = Collective::Scatter,
      .needs = Needs::PeerMemory,
      .division = Division::Blocks,
      .lends = true,
      .detains = true,
  };
  static TUTTI_HD int32_t chunks(int32_t ranks) { return ranks; }
  static TUTTI_HD int32_t lanes(int32_t) { return 1; }

  template <class Lane>
    requires PeerMemory<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t) {
    const bool isRoot = view.rank == view.root;
    const auto give = [&](Rank peer) {
      if (isRoot) lane.put(in(peer.value), peer);
    };
    const auto copyOwn = [&] {
      if (isRoot) lane.copy(in(view.rank.value), out(0));
    };
    const auto take = [&](Rank peer) {
      if (peer == view.root) lane.load(peer, out(0));
    };
    meet(lane, view, give, copyOwn, take);
  }
};

}  // namespace tutti::algo
