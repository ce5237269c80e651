// What an algorithm costs whatever the size of a call: hops one after the other, and memory traffic for each byte.
//
// A fold over the recorded steps of all ranks, so it follows the algorithm by construction. Pure functions.
#pragma once

#include <span>

#include "exec/record/catalog.h"
#include "exec/record/cost.h"

namespace tutti::exec::record {

struct Profile {
  int32_t farHops = 0;   ///< on the longest way of one slice through all ranks: waits for a rank of another node, one after the other
  int32_t hops = 0;      ///< on that way: waits for other ranks of the node
  int32_t messages = 0;  ///< sent and received on that way
  double traffic = 0;    ///< bytes read and written in memory by all ranks together, for each byte of a rank's larger buffer
  double busiest = 0;    ///< the same of the rank that has the most of it
  double lane = 0;       ///< the same of the lane that has the most of it
  double crossing = 0;   ///< bytes that a rank sends to others, of the rank that sends the most; for each byte of the same
  double arriving = 0;   ///< bytes that a rank receives from others, of the rank that receives the most; for each byte of the same
  double leaving = 0;    ///< bytes that go from one node to others, of the node that sends the most; for each byte of the same
  int32_t steps = 0;     ///< of the longest lane, for one slice
};

/// `views[r]`: what rank r sees. `loans`, `passesByReference`: cost.h.
Profile profileOf(const Algorithm& algorithm, std::span<const algo::LayoutView> views, Loans loans, bool passesByReference = true);

}  // namespace tutti::exec::record
