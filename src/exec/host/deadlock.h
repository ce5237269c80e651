// Finds ranks that can never go on, from what all ranks of a communicator have published about their waits.
//
// Pure functions over the state of transport::local::Waits; called under its lock.
// 1. Works of a rank run one after the other: what a rank has not begun comes only when the chain before it, or its whole current
//    work, has ended. A rank that has published nothing may do anything.
// 2. Hopeless are the waits that no sequence of moves can end: all those that are not provably able to move, which is the
//    largest such set.
// 3. A finding counts when every rank of it has inspected its wait twice more, in the same episode: the waits were then true at one
//    time, when it was first seen, with nothing in flight.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/status.h"
#include "transport/local/waits.h"

namespace tutti::exec::host {

struct Deadlock {
  Status cause;
  std::vector<RankCall> calls;  ///< the two that do not match
};

/// A call that can never end, and whom it waits for.
struct Blocked {
  Rank rank;
  Call call;
  Rank peer;
};
/// Of ranks that wait for each other, each for the next: the text quotes two whose calls do not match, and the others.
Deadlock explainCircle(std::vector<Blocked> circle);

/// To be called by each waiting rank after each inspection of its own; `nowNs` only limits how often the search runs.
std::optional<Deadlock> findDeadlock(transport::local::Waits::State& state, int64_t nowNs);

}  // namespace tutti::exec::host
