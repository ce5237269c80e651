// All pairs: every rank of a group gives what it has to every other at once, and each combines all of it in the same order.
//
// One flight inside the nodes and one across them, at (ranks of a node - 1) and (nodes - 1) times the bytes: for short calls between hosts,
// where a flight costs more than a message. Among ranks that see each other's memory one-shot does it without pipes.
#pragma once

#include "algo/lane.h"
#include "algo/layout.h"
#include "algo/traits.h"

namespace tutti::algo {

struct AllPairsAllReduce {
  /// Ranks of a node, and nodes.
  static constexpr int32_t kMostAtOnce = 16;

  static constexpr Traits kTraits{
      .name = "allpairs",
      .collective = Collective::AllReduce,
      .needs = Needs::Pipe,
      .division = Division::Shares,
      .usesNodes = true,
      .farOnly = true,
      .mostAtOnce = kMostAtOnce,
  };
  static TUTTI_HD int32_t chunks(int32_t) { return 1; }
  static TUTTI_HD int32_t lanes(int32_t) { return 1; }

  /// What a rank sends to all passes through a pipe to itself first, which makes it a copy: in place, the sum is written to where the
  /// contribution lies before all others need have read that.
  template <class Lane>
    requires Pipe<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t) {
    const Ring inside = view.grid.inside();
    const Ring across = view.grid.across();
    const bool isOneNode = across.size == 1;
    if (view.ranks == 1) return lane.reduceCopy(in(0), out(0));
    lane.contribute(in(0), view.rank);
    lane.recvCombineSend(view.rank, 0, all(isOneNode || inside.size > 1 ? inside : across));
    if (!isOneNode && inside.size > 1) lane.recvCombineSend(all(inside), 0, all(across));
    lane.recvCombineCopy(all(isOneNode ? inside : across), out(0));
  }

  template <class Sum>
  static auto order(Sum& sum, int32_t, const LayoutView* ranks) {
    const Ring across = ranks[0].grid.across();
    const auto node = [&](int32_t place) {
      const Ring inside = ranks[rankAt(across, place).value].grid.inside();
      return combine(sum, inside.size, [&](int32_t local) { return sum.leaf(rankAt(inside, local)); });
    };
    return combine(sum, across.size, node);
  }

 private:
  static TUTTI_HD Peers all(const Ring& group) { return Peers::places(group.order, group.first, group.stride, group.size); }
  static Rank rankAt(const Ring& group, int32_t place) { return all(group).at(place); }

  /// All of a group at once, in the order of its places.
  template <class Sum, class Operand>
  static auto combine(Sum& sum, int32_t size, const Operand& operand) {
    return size == 1 ? operand(0) : sum.addEach(size, operand);
  }
};

}  // namespace tutti::algo
