// Hierarchical algorithms: rings inside the nodes and rings across them, so that only 1/locals of the data leaves a node through each rank.
//
// Chunk c belongs to rank c. A sum is first combined inside each node, then across nodes; a gather goes the other way. Each part is a lane
// of its own, so one slice can be on its way between nodes while the next is combined inside. What lanes pass to each other goes through a
// pipe of the rank to itself, or lies in the output and is handed over.
#pragma once

#include "algo/ring.h"

namespace tutti::algo {

struct Hierarchy {
  /// Port of the gathering rings inside nodes, which run beside the reducing ones.
  static constexpr uint8_t kGatherPort = 1;

  /// Combines the contributions of this node to the chunks that its rank number `local` owns on every node, and sends them to this rank's
  /// next lane in the order in which a ring across the nodes needs them: the own one last.
  template <class Lane>
  static TUTTI_HD void reduceInside(Lane& lane, const LayoutView& view) {
    const Grid& grid = view.grid;
    const Ring inside = grid.inside();
    for (int32_t node = -1; node >= -grid.nodes; --node) {
      const auto chunk = [&](int32_t offset) { return grid.at(node, offset).value; };
      if (inside.size == 1) {
        lane.contribute(in(chunk(0)), view.rank);
      } else {
        ringReduce(lane, inside, chunk);
        lane.recvReduceSend(inside.prev(), in(chunk(0)), view.rank);
      }
    }
  }

  /// Takes over from reduceInside: the ring across the nodes, up to the step that completes the own chunk.
  template <class Lane>
  static TUTTI_HD void reduceAcross(Lane& lane, const LayoutView& view) {
    const Ring across = view.grid.across();
    for (int32_t step = 1; step < across.size; ++step) {
      const int32_t chunk = across.at(-step).value;
      lane.recvCombineSend(step == 1 ? Peers(view.rank) : Peers(view.rank, across.prev()), chunk, across.next());
    }
  }

  /// Passes on inside the node what this rank has of every node.
  template <class Lane>
  static TUTTI_HD void gatherInside(Lane& lane, const LayoutView& view) {
    const Grid& grid = view.grid;
    const Ring inside = grid.inside();
    lane.usePort(kGatherPort);
    if (inside.size == 1) return;
    for (int32_t node = 0; node < grid.nodes; ++node) {
      const auto chunk = [&](int32_t offset) { return grid.at(-node, offset).value; };
      lane.send(out(chunk(0)), inside.next());
      ringGather(lane, inside, chunk);
    }
  }

  template <class Sum>
  static auto order(Sum& sum, int32_t chunk, const LayoutView* ranks) {
    const Ring across = ranks[chunk].grid.across();
    const auto node = [&](int32_t offset) { return ringOrder(sum, ranks[across.at(offset).value].grid.inside()); };
    auto value = node(1);
    for (int32_t k = 2; k <= across.size; ++k) value = sum.add(node(k), value);
    return value;
  }
};

struct HierarchicalAllReduce {
  static constexpr Traits kTraits{
      .name = "hierarchical",
      .collective = Collective::AllReduce,
      .needs = Needs::Pipe,
      .division = Division::Shares,
      .usesNodes = true,
  };
  static TUTTI_HD int32_t chunks(int32_t ranks) { return ranks; }
  static TUTTI_HD int32_t lanes(int32_t) { return 3; }

  template <class Lane>
    requires Pipe<Lane> && HandOver<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t laneIndex) {
    if (laneIndex == 0) return Hierarchy::reduceInside(lane, view);
    if (laneIndex == 1) return across(lane, view);
    lane.take(1);
    Hierarchy::gatherInside(lane, view);
  }

  template <class Sum>
  static auto order(Sum& sum, int32_t chunk, const LayoutView* ranks) {
    return Hierarchy::order(sum, chunk, ranks);
  }

 private:
  template <class Lane>
  static TUTTI_HD void across(Lane& lane, const LayoutView& view) {
    const Ring ring = view.grid.across();
    const int32_t own = view.rank.value;
    Hierarchy::reduceAcross(lane, view);
    if (ring.size == 1) {
      lane.recvCombineCopy(view.rank, out(own));
    } else {
      lane.recvCombineCopySend(Peers(view.rank, ring.prev()), out(own), ring.next());
      ringGather(lane, ring, [&](int32_t offset) { return ring.at(offset).value; });
    }
    lane.give(2);
  }
};

struct HierarchicalReduceScatter {
  static constexpr Traits kTraits{
      .name = "hierarchical",
      .collective = Collective::ReduceScatter,
      .needs = Needs::Pipe,
      .division = Division::Blocks,
      .usesNodes = true,
  };
  static TUTTI_HD int32_t chunks(int32_t ranks) { return ranks; }
  static TUTTI_HD int32_t lanes(int32_t) { return 2; }

  template <class Lane>
    requires Pipe<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t laneIndex) {
    if (laneIndex == 0) return Hierarchy::reduceInside(lane, view);
    const Ring ring = view.grid.across();
    Hierarchy::reduceAcross(lane, view);
    lane.recvCombineCopy(ring.size == 1 ? Peers(view.rank) : Peers(view.rank, ring.prev()), out(0));
  }

  template <class Sum>
  static auto order(Sum& sum, int32_t chunk, const LayoutView* ranks) {
    return Hierarchy::order(sum, chunk, ranks);
  }
};

struct HierarchicalAllGather {
  static constexpr Traits kTraits{
      .name = "hierarchical",
      .collective = Collective::AllGather,
      .needs = Needs::Pipe,
      .division = Division::Blocks,
      .usesNodes = true,
  };
  static TUTTI_HD int32_t chunks(int32_t ranks) { return ranks; }
  static TUTTI_HD int32_t lanes(int32_t) { return 2; }

  template <class Lane>
    requires Pipe<Lane> && HandOver<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t laneIndex) {
    if (laneIndex == 1) {
      lane.take(0);
      return Hierarchy::gatherInside(lane, view);
    }
    const Ring ring = view.grid.across();
    const int32_t own = view.rank.value;
    if (ring.size == 1) {
      lane.copy(in(0), out(own));
    } else {
      lane.copySend(in(0), out(own), ring.next());
      ringGather(lane, ring, [&](int32_t offset) { return ring.at(offset).value; });
    }
    lane.give(1);
  }
};

}  // namespace tutti::algo
