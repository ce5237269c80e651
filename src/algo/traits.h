// What an algorithm says of itself. Each algorithm is a struct with
//
//   static constexpr Traits kTraits;                                      name, collective, what it needs
//   static int32_t chunks(int32_t ranks), lanes(int32_t ranks);           how data and work are divided
//   template <class Lane> static void run(Lane&, const LayoutView&, int lane);      the program of one slice of one lane
//   template <class Sum> static auto order(Sum&, int chunk, const LayoutView* ranks);       reductions: the order it promises
//
// `order` builds the promised expression from sum.leaf(rank), sum.add(a, b …) and sum.addEach(n, operand): "own first, then the
// received ones". The prover compares it with what the program does, the conformance tests with the bits of every executor. Adding an
// algorithm: write its header, add it to list.h.
#pragma once

#include <string_view>

#include "algo/geometry.h"
#include "core/types.h"

namespace tutti::algo {

enum class Needs : uint8_t { Pipe, PeerMemory };

/// In which order a reduction combines, from the least to the most reproducible.
enum class Order : uint8_t {
  Layout,      ///< along rings or trees: the result depends on them, and on which chunk an element belongs to
  RankHops,    ///< rank 0 first, rounded after every contribution
  RankAtOnce,  ///< rank 0 first, accumulated in the accumulation type and rounded once
};

struct Traits {
  std::string_view name;
  Collective collective;
  Needs needs;
  Division division;
  Order order = Order::Layout;
  int32_t minSlots = 2;    ///< Pipe: with fewer slots it may wait for ever
  int32_t rounds = 1;      ///< PeerMemory: of every slice
  bool usesNodes = false;  ///< it follows the division into nodes
  bool lends = false;      ///< PeerMemory: what a rank stores, it leaves as it is until the call ends, so that peers may read it in place
  /// Lends, and once all have arrived in a round, nobody needs what lies in any output where a rank combines a chunk, which it puts to all
  /// in the next round and all load to that place: so it may be written there at once.
  bool places = false;
  bool farOnly = false;    ///< for ranks of several hosts: where all see each other's memory, another does the same in fewer steps
  /// Pipe: what a rank sends to several it sends to all others, always to the same ones first, through pipes that carry nothing else: so it
  /// needs to be written only once, where all of them read it. For host devices that see the same memory.
  bool fansOut = false;
  int32_t mostAtOnce = 0;  ///< above 0: it runs on at most so many ranks; where it usesNodes, on so many nodes, of so many ranks each
  bool detains = false;    ///< ranks that only give wait for those that take, where another algorithm would let them go on

  TUTTI_HD constexpr bool needsSharedMemory() const { return needs == Needs::PeerMemory || fansOut; }
  /// Whether kernels may run it.
  TUTTI_HD constexpr bool isForDevices() const { return !farOnly && !fansOut; }
  TUTTI_HD constexpr bool runsOn(int32_t nodes, int32_t locals) const {
    return mostAtOnce == 0 || (usesNodes ? nodes <= mostAtOnce && locals <= mostAtOnce : nodes * locals <= mostAtOnce);
  }
};

}  // namespace tutti::algo
