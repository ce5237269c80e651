#include "comm/encounter.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace tutti::comm {

namespace {

constexpr int32_t kMost = 1 << 20;  // of what a machine has, or ranks have together: products with it are numbers

/// The last-level caches of a machine that its ranks are below: those that ranks are bound to, or that one of them may use.
int32_t cachesOf(std::span<const Arrival> arrivals, const std::vector<int32_t>& members) {
  std::set<std::pair<uint64_t, int32_t>> bound;
  std::set<uint64_t> machines;
  int32_t most = 0;
  for (const int32_t member : members) {
    const Arrival& arrival = arrivals[static_cast<size_t>(member)];
    most = std::max(most, arrival.caches);
    machines.insert(arrival.machine);
    if (arrival.cache >= 0) bound.emplace(arrival.machine, arrival.cache);
  }
  return std::max(most, static_cast<int32_t>(bound.size() / std::max<size_t>(1, machines.size())));
}

struct CoreSet {
  int32_t cores = 1;
  int32_t ranks = 0;
};

/// By their names.
std::map<uint64_t, CoreSet> coreSetsOf(std::span<const Arrival> arrivals, const std::vector<int32_t>& members) {
  std::map<uint64_t, CoreSet> sets;
  for (const int32_t member : members) {
    const Arrival& arrival = arrivals[static_cast<size_t>(member)];
    CoreSet& set = sets[arrival.coreSet];
    set.cores = std::max(set.cores, arrival.cores);
    ++set.ranks;
  }
  return sets;
}

/// All that the ranks may use, on all machines. Sets that are not the same count as if they had nothing in common, as those of bound ranks
/// have.
int32_t coresOf(const std::map<uint64_t, CoreSet>& sets) {
  return std::accumulate(sets.begin(), sets.end(), 0, [](int32_t sum, const auto& set) { return std::min(sum + set.second.cores, kMost); });
}

}  // namespace

bool isPossible(const Arrival& arrival) {
  const auto isWithin = [](int32_t value, int32_t least, int32_t most) { return value >= least && value <= most; };
  const auto isFlag = [&](int32_t value) { return isWithin(value, 0, 1); };
  return arrival.minCtas >= 1 && arrival.maxCtas >= 1 && isWithin(arrival.cores, 1, kMost) && isWithin(arrival.multiprocessors, 0, kMost) &&
         isFlag(arrival.keepsLines) && isFlag(arrival.streams) && isFlag(arrival.copies) && isFlag(arrival.hasFailed) &&
         arrival.gpu >= -1 && isWithin(arrival.numa, -1, kMost) && isWithin(arrival.cache, -1, kMost) &&
         isWithin(arrival.caches, 0, kMost);
}

Grouping formGroups(std::span<const Arrival> arrivals) {
  std::vector<int32_t> order(arrivals.size());
  std::iota(order.begin(), order.end(), 0);
  const auto keyOf = [arrivals](int32_t i) {
    const Arrival& arrival = arrivals[static_cast<size_t>(i)];
    return std::pair(arrival.color, arrival.key);
  };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return keyOf(a) < keyOf(b); });

  Grouping grouping;
  grouping.places.resize(arrivals.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    const int32_t color = keyOf(order[begin]).first;
    while (end < order.size() && keyOf(order[end]).first == color) ++end;
    if (color == kNoColor) continue;
    Place agreed;
    agreed.group = static_cast<int32_t>(grouping.members.size());
    agreed.ranks = static_cast<int32_t>(end - begin);
    auto& members =
        grouping.members.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(begin), order.begin() + static_cast<std::ptrdiff_t>(end));
    agreed.multiprocessors = arrivals[static_cast<size_t>(members.front())].multiprocessors;
    agreed.keepsLines = agreed.streams = agreed.copies = true;
    agreed.constants = arrivals[static_cast<size_t>(members.front())].constants;
    for (const int32_t member : members) {
      const Arrival& arrival = arrivals[static_cast<size_t>(member)];
      agreed.minCtas = std::max(agreed.minCtas, arrival.minCtas);
      agreed.maxCtas = std::min(agreed.maxCtas, arrival.maxCtas);
      agreed.isMixed = agreed.isMixed || (arrival.multiprocessors == 0) != (agreed.multiprocessors == 0);
      agreed.keepsLines = agreed.keepsLines && arrival.keepsLines != 0;
      agreed.streams = agreed.streams && arrival.streams != 0;
      agreed.copies = agreed.copies && arrival.copies != 0;
      agreed.hasFailed = agreed.hasFailed || arrival.hasFailed != 0;
      agreed.cacheBytes = std::max(agreed.cacheBytes, arrival.cacheBytes);
      agreed.pastCacheBytes = std::max(agreed.pastCacheBytes, arrival.pastCacheBytes);
      agreed.constantsDiffer = agreed.constantsDiffer || arrival.constants != agreed.constants;
      agreed.multiprocessors = std::min(agreed.multiprocessors, arrival.multiprocessors);
    }
    if (agreed.constantsDiffer) agreed.constants = 0;
    agreed.caches = cachesOf(arrivals, members);
    const auto coreSets = coreSetsOf(arrivals, members);
    agreed.cores = coresOf(coreSets);
    for (size_t i = 0; i < members.size(); ++i) {
      const CoreSet& own = coreSets.at(arrivals[static_cast<size_t>(members[i])].coreSet);
      agreed.sharesCores = own.ranks > own.cores;
      agreed.rank = Rank(static_cast<int32_t>(i));
      grouping.places[static_cast<size_t>(members[i])] = agreed;
    }
  }
  return grouping;
}

std::shared_ptr<const std::vector<Arrival>> membersOf(std::span<const Arrival> arrivals, const std::vector<int32_t>& members) {
  auto made = std::make_shared<std::vector<Arrival>>();
  for (const int32_t member : members) made->push_back(arrivals[static_cast<size_t>(member)]);
  return made;
}

}  // namespace tutti::comm
