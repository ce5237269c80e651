#include "exec/host/suspects.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

namespace tutti::exec::host {
namespace {

using transport::local::ChainWait;
using transport::local::Ending;
using transport::local::Hub;
using transport::local::RankWait;
using transport::local::Suspected;
using transport::local::Verdict;
using transport::local::Waits;

/// Ranks without which a wait cannot move.
std::set<int32_t> awaitedBy(const RankWait& wait) {
  std::set<int32_t> ranks;
  for (const ChainWait& chain : wait.chains) {
    for (const auto& lane : chain.lanes)
      for (const Rank rank : lane.awaits) ranks.insert(rank.value);
    if (chain.lanes.empty() && chain.call.isMessage()) ranks.insert(chain.call.root);
  }
  return ranks;
}

/// Whether the rank has said lately that it waits: one that was stopped, or cannot be reached, confirms nothing. Ranks of other hosts say
/// it ten times a second, or as often as so many may.
bool isWaiting(const Hub& hub, const Waits::Entry& entry, int64_t waitedMs) {
  constexpr std::chrono::nanoseconds kLeast = std::chrono::milliseconds(250);
  const std::chrono::nanoseconds pause = hub.remote() == nullptr ? std::chrono::nanoseconds(0) : hub.remote()->pause();
  const int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  return entry.waits && now - entry.confirmedNs < std::max({kLeast.count(), 5 * pause.count() / 2, waitedMs * 500'000});
}

/// Where the waits lead: those that are waited for, and do not wait themselves.
std::set<int32_t> endsOfWaits(const Hub& hub, const Waits::State& state, const Verdict& verdict, const RankWait& own) {
  const std::set<int32_t> first = awaitedBy(own);
  std::set<int32_t> ends;
  std::set<int32_t> seen = {verdict.rank.value};
  std::vector<int32_t> open(first.begin(), first.end());
  while (!open.empty()) {
    const int32_t rank = open.back();
    open.pop_back();
    if (!seen.insert(rank).second) continue;
    const Waits::Entry& entry = state.ranks[static_cast<size_t>(rank)];
    const std::set<int32_t> next = isWaiting(hub, entry, verdict.waitedMs) ? awaitedBy(entry.wait) : std::set<int32_t>();
    if (next.empty()) ends.insert(rank);
    open.insert(open.end(), next.begin(), next.end());
  }
  return ends.empty() ? first : ends;  // a circle: what is between them is lost
}

std::set<int32_t> blamedRanks(const Hub& hub) {
  std::set<int32_t> ranks;
  for (int32_t r = 0; r < hub.ranks(); ++r)
    if (hub.isBlamed(Rank(r)) || (!hub.departed(Rank(r)) && !hub.isAlive(Rank(r)))) ranks.insert(r);
  return ranks;
}

std::set<int32_t> findSuspects(const Hub& hub, const Waits::State& state, const Verdict& verdict, const RankWait& own) {
  std::set<int32_t> ranks;
  switch (verdict.ending) {
    case Ending::Mismatch: break;
    case Ending::Aborted: ranks = blamedRanks(hub); break;
    case Ending::Departed:
      for (const Rank rank : verdict.missing)
        if (hub.lastCalls(rank)) ranks.insert(rank.value);
      break;
    case Ending::Deadline:
      ranks = endsOfWaits(hub, state, verdict, own);
      if (ranks.empty())
        for (const Rank rank : verdict.missing) ranks.insert(rank.value);
      break;
  }
  return ranks;
}

}  // namespace

std::vector<Suspected> suspectsOf(const Hub& hub, const Waits::State& state, const Verdict& verdict, const RankWait& own) {
  constexpr size_t kMost = 8;
  std::vector<Suspected> suspects;
  for (const int32_t rank : findSuspects(hub, state, verdict, own))
    if (suspects.size() < kMost) suspects.push_back({Rank(rank), {}});
  return suspects;
}

}  // namespace tutti::exec::host
