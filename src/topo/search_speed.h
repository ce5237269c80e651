// Speeds worth trying, and the speed that a given set of channels reaches.
//
// Internal to the search of topo/; pure functions; one thread.
#pragma once

#include <vector>

#include "topo/search_bound.h"
#include "topo/search_problem.h"

namespace tutti::topo {

/// How many channels of how much, at most.
struct Goal {
  int64_t speedMBps = 0;
  int channels = 0;
  int64_t value() const { return speedMBps * channels; }
};

struct Limits {
  int minChannels = 1;
  int maxChannels = 32;
  int64_t ceilingMBps = 0;  ///< Of one channel.
  int64_t floorMBps = 1;
};

/// Speeds at which one more channel stops to fit somewhere, each with the channels that the cuts let pass; the best product first, of equal
/// ones the highest speed; only those with a product above `worth` and at least minChannels.
std::vector<Goal> goals(const Cuts& cuts, const Limits& limits, int64_t worth);

/// Products that no set of channels exceeds: the first goal's. Quicker than goals(), and not below it.
int64_t roughBound(const Cuts& cuts, const Limits& limits);

/// The highest speed at which the cuts let `channels` pass, at most limits.ceilingMBps.
int64_t fastestFor(const Cuts& cuts, const Limits& limits, int channels);

struct Speeds {
  int64_t intraMBps = 0;
  int64_t interMBps = 0;
};
/// The highest speeds at which `orders` fit: equal ones for rings; of trees the inside is then raised to at most twice the outside.
Speeds fastest(const Problem& problem, const Mode& mode, const std::vector<Order>& orders, int64_t ceilingInter, int64_t ceilingIntra);

}  // namespace tutti::topo
