// The most channels that fit at one speed, for few GPUs: all channels there are, and every useful multiset of them.
//
// Internal to the search of topo/; a pure function; one thread. Its answer is a proof only while the steps last.
#pragma once

#include <vector>

#include "topo/search_bound.h"
#include "topo/search_problem.h"
#include "topo/search_speed.h"

namespace tutti::topo {

/// Whether listing all channels of a mode is affordable.
bool exactIsSmall(const Problem& problem, const Mode& mode);

/// More than `atLeast` channels at the goal's speed, as many as there are up to goal.channels; empty where none were found. `complete`: all
/// were looked at, so that there are none (or no more).
std::vector<Order> packExactly(const Problem& problem, const Mode& mode, const Cuts& cuts, const Goal& goal, int atLeast, int64_t& steps,
                               bool& complete);

}  // namespace tutti::topo
