#include "exec/host/deadlock.h"

#include <algorithm>
#include <utility>

#include "core/format.h"
#include "exec/host/signature.h"

namespace tutti::exec::host {
namespace {

using transport::local::ChainWait;
using transport::local::LaneWait;
using transport::local::Waits;

size_t indexOf(Rank rank) { return static_cast<size_t>(rank.value); }

/// Which published waits may still end. Starts from "none" and adds what can move, until nothing can be added.
class Outlook {
 public:
  explicit Outlook(const std::vector<Waits::Entry>& ranks) : ranks_(ranks), live_(ranks.size()) {
    for (size_t r = 0; r < ranks.size(); ++r) {
      if (!ranks[r].waits) continue;
      for (const ChainWait& chain : ranks[r].wait.chains) live_[r].emplace_back(std::max<size_t>(chain.lanes.size(), 1), false);
    }
    for (bool changed = true; changed;) changed = improve();
  }

  bool isHopeless(size_t rank) const { return !canEnd(rank); }

  /// The peers that keep a hopeless chain from going on; none for a chain that may move.
  std::vector<Rank> obstacles(size_t rank, size_t chain) const {
    const ChainWait& wait = ranks_[rank].wait.chains[chain];
    std::vector<Rank> peers;
    if (chainLives(rank, chain)) return peers;
    if (wait.call.isMessage()) return {Rank(wait.call.root)};
    // A lane that waits for another one of its own rank has none: that one has.
    for (const LaneWait& lane : wait.lanes)
      for (const Rank peer : lane.awaits)
        if (indexOf(peer) != rank && !serves(peer, rank, wait.call.sequence)) peers.push_back(peer);
    return peers;
  }
  bool chainLives(size_t rank, size_t chain) const {
    const auto& lanes = live_[rank][chain];
    return std::all_of(lanes.begin(), lanes.end(), [](bool live) { return live; });
  }

 private:
  bool improve() {
    bool changed = false;
    for (size_t r = 0; r < live_.size(); ++r)
      for (size_t c = 0; c < live_[r].size(); ++c)
        for (size_t l = 0; l < live_[r][c].size(); ++l)
          if (!live_[r][c][l] && canMove(r, c, l)) live_[r][c][l] = changed = true;
    return changed;
  }

  bool canMove(size_t rank, size_t chain, size_t lane) const {
    const ChainWait& wait = ranks_[rank].wait.chains[chain];
    if (wait.call.isMessage()) return messageCanMove(rank, wait.call);
    if (wait.lanes.empty()) return true;  // not told: it may move
    const LaneWait& own = wait.lanes[lane];
    if (own.finished || own.mayMove) return true;
    if (own.ownLane >= 0) return live_[rank][chain][static_cast<size_t>(own.ownLane)];
    return std::all_of(own.awaits.begin(), own.awaits.end(), [&](Rank peer) { return serves(peer, rank, wait.call.sequence); });
  }

  bool canEnd(size_t rank) const {
    for (size_t c = 0; c < live_[rank].size(); ++c)
      if (!chainLives(rank, c)) return false;
    return true;
  }

  /// Whether `peer` may yet do its part of collective `sequence` for `rank`.
  bool serves(Rank peer, size_t rank, uint64_t sequence) const {
    const size_t p = indexOf(peer);
    const Waits::Entry& entry = ranks_[p];
    if (!entry.waits || entry.wait.begunCollectives > sequence + 1) return true;
    const auto& chains = entry.wait.chains;
    const auto found = std::find_if(chains.begin(), chains.end(), [](const ChainWait& c) { return !c.call.isMessage(); });
    const auto c = static_cast<size_t>(found - chains.begin());
    if (entry.wait.begunCollectives == sequence + 1) {  // it is in the same call, or has ended it
      if (found == chains.end() || found->call.sequence != sequence) return true;
      bool meets = false;
      for (size_t l = 0; l < found->lanes.size(); ++l) {
        const LaneWait& lane = found->lanes[l];
        if (lane.finished || std::find(lane.partners.begin(), lane.partners.end(), Rank(static_cast<int32_t>(rank))) == lane.partners.end())
          continue;
        if (live_[p][c][l]) return true;
        meets = true;
      }
      return !meets;
    }
    const bool ahead = found != chains.end() && found->call.sequence + found->following >= sequence;
    return (ahead && chainLives(p, c)) || canEnd(p);
  }

  bool messageCanMove(size_t rank, const Call& message) const {
    const Waits::Entry& entry = ranks_[static_cast<size_t>(message.root)];
    const Rank self(static_cast<int32_t>(rank));
    if (!entry.waits || entry.wait.begunMessages(self, !message.receives) > message.sequence) return true;
    for (size_t c = 0; c < entry.wait.chains.size(); ++c) {
      const Call& theirs = entry.wait.chains[c].call;
      if (!theirs.isMessage() || Rank(theirs.root) != self || theirs.receives == message.receives) continue;
      // A sender may go on as soon as any message before this one is read.
      const bool ahead = !message.receives || theirs.sequence + entry.wait.chains[c].following >= message.sequence;
      if (ahead && chainLives(static_cast<size_t>(message.root), c)) return true;
    }
    return canEnd(static_cast<size_t>(message.root));
  }

  const std::vector<Waits::Entry>& ranks_;
  std::vector<std::vector<std::vector<bool>>> live_;  // [rank][chain][lane]; a message counts as one lane
};

/// Whether nothing is wrong with two calls: a send and a receive that meet are never hopeless.
bool match(const Call& a, const Call& b) { return !a.isMessage() && agree(a, b); }

/// The hopeless chains of a suspect, once for each suspect that they wait for. There is one at least; others may have come later.
std::vector<Blocked> blockedOf(const Waits::State& state, const Outlook& outlook, size_t rank) {
  const auto isSuspect = [&](Rank r) {
    return std::any_of(state.suspects.begin(), state.suspects.end(), [r](const Waits::Suspect& s) { return s.rank == r; });
  };
  const std::vector<ChainWait>& chains = state.ranks[rank].wait.chains;
  std::vector<Blocked> blocked;
  for (size_t c = 0; c < chains.size(); ++c)
    for (const Rank peer : outlook.obstacles(rank, c))
      if (isSuspect(peer)) blocked.push_back({Rank(static_cast<int32_t>(rank)), chains[c].call, peer});
  return blocked;
}

/// Ranks that wait for each other in a circle, each with the call that does. Two that wait for one another directly come first.
std::vector<Blocked> findCircle(const Waits::State& state, const Outlook& outlook) {
  std::vector<std::vector<Blocked>> edges(state.ranks.size());
  for (const Waits::Suspect& s : state.suspects) edges[indexOf(s.rank)] = blockedOf(state, outlook, indexOf(s.rank));
  for (const auto& from : edges)
    for (const Blocked& there : from)
      for (const Blocked& back : edges[indexOf(there.peer)])
        if (back.peer == there.rank && !match(there.call, back.call)) return {there, back};
  std::vector<Blocked> path;
  for (Rank at = state.suspects.front().rank; !edges[indexOf(at)].empty();) {
    const auto again = std::find_if(path.begin(), path.end(), [at](const Blocked& b) { return b.rank == at; });
    if (again != path.end()) {
      path.erase(path.begin(), again);
      break;
    }
    path.push_back(edges[indexOf(at)].front());
    at = path.back().peer;
  }
  return path;
}

/// Whether the suspects of an earlier search have stood still ever since, and have all confirmed it twice.
enum class Trial : uint8_t { Dropped, Open, Confirmed };
Trial judge(const Waits::State& state, const Outlook& outlook) {
  if (state.suspects.empty()) return Trial::Dropped;
  bool confirmed = true;
  for (const Waits::Suspect& s : state.suspects) {
    const Waits::Entry& entry = state.ranks[indexOf(s.rank)];
    if (!entry.waits || entry.episode != s.episode || !outlook.isHopeless(indexOf(s.rank))) return Trial::Dropped;
    confirmed = confirmed && entry.inspections >= s.inspections + 2;
  }
  return confirmed ? Trial::Confirmed : Trial::Open;
}

/// A search takes longer the more ranks there are, and the longer a rank is late the less there is to find.
void setNextSearch(Waits::State& state, int64_t nowNs) {
  constexpr int64_t kLongestPauseNs = 50'000'000;
  const auto ranks = static_cast<int64_t>(state.ranks.size());
  const int64_t shortest = std::min(ranks * ranks * 1000, kLongestPauseNs);
  state.searchPauseNs = state.suspects.empty() ? std::clamp(2 * state.searchPauseNs, shortest, kLongestPauseNs) : shortest;
  state.nextSearchNs = nowNs + state.searchPauseNs;
}

}  // namespace

Deadlock explainCircle(std::vector<Blocked> circle) {
  // The quoted pair is the one in front: it must not be two ranks in the same call.
  for (size_t turns = 0; turns < circle.size() && circle.size() > 1 && match(circle[0].call, circle[1].call); ++turns)
    std::rotate(circle.begin(), circle.begin() + 1, circle.end());
  if (circle.size() < 2 || match(circle[0].call, circle[1].call))
    return {error(Code::InternalError, "ranks that made the same calls wait for each other: rank {} in {}",
                  circle.empty() ? -1 : circle[0].rank.value, circle.empty() ? "no call" : describeCall(circle[0].call)),
            {}};
  std::string others;
  constexpr size_t kMostQuoted = 8;
  for (size_t i = 2; i < std::min(circle.size(), kMostQuoted); ++i)
    others += format(", rank {} in {}", circle[i].rank.value, describeCall(circle[i].call));
  if (circle.size() > kMostQuoted) others += format(" and {} more", circle.size() - kMostQuoted);
  const Blocked& a = circle[0];
  const Blocked& b = circle[1];
  return {error(Code::InvalidUsage,
                "calls do not match: rank {} called {}, but rank {} called {}{}, and they wait for each other for ever; outside a group "
                "a call may have to wait until its peers make theirs",
                a.rank.value, describeCall(a.call), b.rank.value, describeCall(b.call), others),
          {{a.rank, a.call}, {b.rank, b.call}}};
}

std::optional<Deadlock> findDeadlock(Waits::State& state, int64_t nowNs) {
  if (nowNs < state.nextSearchNs) return std::nullopt;
  setNextSearch(state, nowNs);

  const Outlook outlook(state.ranks);
  switch (judge(state, outlook)) {
    case Trial::Open: return std::nullopt;
    case Trial::Confirmed: return explainCircle(findCircle(state, outlook));
    case Trial::Dropped: break;
  }
  state.suspects.clear();
  for (size_t r = 0; r < state.ranks.size(); ++r)
    if (state.ranks[r].waits && outlook.isHopeless(r))
      state.suspects.push_back({Rank(static_cast<int32_t>(r)), state.ranks[r].episode, state.ranks[r].inspections});
  return std::nullopt;
}

}  // namespace tutti::exec::host
