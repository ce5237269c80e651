// What an algorithm says of itself. Each algorithm is a struct with
//
//   static constexpr Traits kTraits;                                      name, collective, what it needs
//   static int32_t chunks(int32_t ranks), lanes(int32_t ranks);           how data and work are divided
//   template <class Lane> static void run(Lane&, const LayoutView&, int lane);      the program of one slice of one lane
//   template <class Sum> static auto order(Sum&, int chunk, const LayoutView* ranks);       reductions: the order it promises
//
// `order` builds the promised expression from sum.leaf(rank) and sum.add(a, b …): "own first, then the received ones". The
// prover compares it with what the program does. Adding an algorithm: write its header, add it to list.h.
#pragma once

#include <string_view>

#include "algo/geometry.h"
#include "core/types.h"

namespace tutti::algo {

enum class Needs : uint8_t { Pipe, PeerMemory };

struct Traits {
  std::string_view name;
  Collective collective;
  Needs needs;
  Division division;
};

}  // namespace tutti::algo
