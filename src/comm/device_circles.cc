#include "comm/device_circles.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <tuple>
#include <utility>

namespace tutti::comm {

using exec::host::Blocked;
using exec::host::Deadlock;
using transport::device::IssueBook;
using transport::device::Page;

namespace {

size_t indexOf(Rank rank) { return static_cast<size_t>(rank.value); }
Rank rankOf(size_t index) { return Rank(static_cast<int32_t>(index)); }

/// Exact to some milliseconds, and cheap enough for every call.
int64_t nowMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

/// Whether a rank's call ends only if `peer` does its part.
bool needs(const Call& call, Rank rank, Rank peer, uint64_t sendRoom) {
  if (peer == rank) return false;
  if (call.isMessage()) return call.root == peer.value && (call.receives || call.count * sizeOf(call.type) > sendRoom);
  switch (call.collective) {
    case Collective::Broadcast:
    case Collective::Scatter: return call.root == peer.value;
    case Collective::Reduce:
    case Collective::Gather: return call.root == rank.value;
    default: return true;
  }
}

/// The part of a peer in a call of `rank`.
Call counterpart(const Call& call, Rank rank) {
  Call theirs = call;
  if (!call.isMessage()) return theirs;
  theirs.root = rank.value;
  theirs.receives = !call.receives;
  return theirs;
}

/// What names a call among those of its rank: peer or none, direction, and number.
using Name = std::tuple<int32_t, bool, uint64_t>;
Name nameOf(const Call& call) { return {call.isMessage() ? call.root : -1, call.receives, call.sequence}; }

/// A walk along what has to end before what: a group ends when its calls have, and a call when the group ahead of its own and the group
/// ahead of each part that it needs have. What comes back to where it is on its way is a circle.
class Walk {
 public:
  Walk(std::span<const IssuedCalls> ranks, uint64_t sendRoom, const std::function<bool(Rank, const Call&)>& hasCome)
      : sendRoom_(sendRoom), hasCome_(hasCome), ranks_(ranks.size()) {
    for (size_t r = 0; r < ranks.size(); ++r) {
      Order& order = ranks_[r];
      order.calls = ranks[r];
      order.callStates.resize(order.calls.size());
      for (const auto& [group, call] : ranks[r]) {
        const size_t at = order.groupOf.size();
        if (at == 0 || order.calls[at - 1].group != group) order.groups.push_back({at});
        order.placeOf.emplace(nameOf(call), at);
        order.groupOf.push_back(order.groups.size() - 1);
      }
    }
  }

  std::vector<Blocked> run() {
    for (size_t r = 0; r < ranks_.size(); ++r)
      for (size_t g = 0; g < ranks_[r].groups.size(); ++g)
        if (walkFrom({r, g, true})) return std::move(circle_);
    return {};
  }

 private:
  enum class State : uint8_t { New, Open, Done };
  struct Group {
    size_t first;  ///< call
    State state = State::New;
  };
  struct Order {
    std::span<const IssuedCalls::value_type> calls;
    std::vector<size_t> groupOf;
    std::vector<State> callStates;
    std::vector<Group> groups;
    std::map<Name, size_t> placeOf;
  };
  /// The end of a call or of a group.
  struct Node {
    size_t rank, at;
    bool isGroup;
    bool operator==(const Node&) const = default;
  };
  struct Step {
    Node node;
    size_t next = 0;  ///< what it waits for that is to be looked at next: of a group its calls, of a call the group ahead, then ranks
  };

  State& stateOf(const Node& node) {
    return node.isGroup ? ranks_[node.rank].groups[node.at].state : ranks_[node.rank].callStates[node.at];
  }

  bool walkFrom(const Node& start) {
    if (stateOf(start) != State::New) return false;
    enter(start);
    while (!path_.empty()) {
      const auto to = advance(path_.back());
      if (!to) {
        stateOf(path_.back().node) = State::Done;
        path_.pop_back();
      } else if (stateOf(*to) == State::Open) {
        close(*to);
        return true;
      } else if (stateOf(*to) == State::New) {
        enter(*to);
      }
    }
    return false;
  }

  void enter(const Node& node) {
    stateOf(node) = State::Open;
    path_.push_back({node});
  }

  /// The next end that it waits for.
  std::optional<Node> advance(Step& step) const {
    const Order& own = ranks_[step.node.rank];
    if (step.node.isGroup) {
      const size_t call = own.groups[step.node.at].first + step.next++;
      const bool isOf = call < own.calls.size() && own.groupOf[call] == step.node.at;
      return isOf ? std::optional(Node{step.node.rank, call, false}) : std::nullopt;
    }
    const Call& call = own.calls[step.node.at].call;
    const Rank rank = rankOf(step.node.rank);
    while (step.next <= ranks_.size()) {
      const size_t which = step.next++;
      const size_t group = own.groupOf[step.node.at];
      if (which == 0 && group > 0) return Node{step.node.rank, group - 1, true};
      if (which == 0 || !needs(call, rank, rankOf(which - 1), sendRoom_)) continue;
      if (const auto ahead = groupAheadOf(rankOf(which - 1), counterpart(call, rank))) return Node{which - 1, *ahead, true};
    }
    return std::nullopt;
  }

  /// The last group of `peer` that ends before it comes to its part of another one's call.
  std::optional<size_t> groupAheadOf(Rank peer, const Call& part) const {
    const Order& theirs = ranks_[indexOf(peer)];
    size_t group = theirs.groups.size();
    if (const auto at = theirs.placeOf.find(nameOf(part)); at != theirs.placeOf.end())
      group = theirs.groupOf[at->second];
    else if (hasCome_(peer, part))
      return std::nullopt;
    return group == 0 ? std::nullopt : std::optional(group - 1);
  }

  /// Who goes from rank to rank on the path waits for the other one.
  void close(const Node& node) {
    const auto first = std::ranges::find(path_, node, &Step::node);
    for (auto step = first; step != path_.end(); ++step) {
      const auto after = step + 1 == path_.end() ? first : step + 1;
      if (step->node.rank == after->node.rank) continue;
      circle_.push_back({rankOf(step->node.rank), ranks_[step->node.rank].calls[step->node.at].call, rankOf(after->node.rank)});
    }
  }

  const uint64_t sendRoom_;
  const std::function<bool(Rank, const Call&)>& hasCome_;
  std::vector<Order> ranks_;
  std::vector<Step> path_;
  std::vector<Blocked> circle_;
};

const IssueBook::HeldUp* find(const HeldUpRanks& ranks, Rank rank) {
  if (rank.value < 0 || indexOf(rank) >= ranks.size()) return nullptr;
  const auto& held = ranks[indexOf(rank)];
  return held ? &*held : nullptr;
}

/// Whether a rank has been held up from one look to the other.
bool isStill(const IssueBook::HeldUp* a, const IssueBook::HeldUp* b) {
  return a != nullptr && b != nullptr && a->group == b->group && a->missing == b->missing && a->episode == b->episode;
}

HeldUpRanks readHeldUp(const Page& page) {
  HeldUpRanks ranks;
  for (int32_t r = 0; r < page.ranks(); ++r) ranks.push_back(page.issues(r).heldUp());
  return ranks;
}

}  // namespace

std::vector<Blocked> findCircle(std::span<const IssuedCalls> ranks, uint64_t sendRoom,
                                const std::function<bool(Rank peer, const Call& call)>& hasCome) {
  return Walk(ranks, sendRoom, hasCome).run();
}

std::vector<Rank> circleOfHeldUp(const HeldUpRanks& ranks, Rank rank) {
  for (size_t steps = 0; steps < ranks.size(); ++steps) {  // enough to be on the circle, if it leads to one
    const IssueBook::HeldUp* const held = find(ranks, rank);
    if (held == nullptr) return {};
    rank = held->missing;
  }
  std::vector<Rank> circle;
  Rank at = rank;
  while (const IssueBook::HeldUp* const held = find(ranks, at)) {
    if (!circle.empty() && at == rank) return circle;
    circle.push_back(at);
    at = held->missing;
  }
  return {};
}

void DeviceCircles::tellIssue() { issuedMs_.store(nowMs(), std::memory_order_relaxed); }

std::optional<Deadlock> DeviceCircles::look(const Page& page, const std::function<bool()>& isIdle) {
  constexpr int64_t kBetweenLooksMs = 10;
  if (!isOn_) return std::nullopt;
  const int64_t now = nowMs();
  if (now < nextMs_.load(std::memory_order_relaxed)) return std::nullopt;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return std::nullopt;
  nextMs_.store(now + kBetweenLooksMs, std::memory_order_relaxed);
  auto circle = searchHeldUp(page);
  if (circle.empty()) circle = searchBooks(page, now, isIdle);
  if (circle.empty()) return std::nullopt;
  return exec::host::explainCircle(std::move(circle));
}

std::vector<Blocked> DeviceCircles::searchBooks(const Page& page, int64_t now, const std::function<bool()>& isIdle) {
  constexpr int64_t kLongestPauseMs = 1000;
  if (now < issuedMs_.load(std::memory_order_relaxed) + kStandstillMs) return {};
  if (const uint64_t own = page.issues(rank_.value).written(); own != own_) {
    own_ = own;
    pauseMs_ = nextSearchMs_ = 0;
  }
  if (now < nextSearchMs_) return {};
  uint64_t all = 0;  // counted before they are read: what is issued in between brings another search
  for (int32_t r = 0; r < hub_->ranks(); ++r) all += page.issues(r).written();
  if (all == searched_ || (!page.issues(rank_.value).heldUp() && isIdle())) return {};
  searched_ = all;
  pauseMs_ = std::clamp<int64_t>(2 * pauseMs_, 1, kLongestPauseMs);
  nextSearchMs_ = now + pauseMs_;
  std::vector<IssuedCalls> ranks;
  for (int32_t r = 0; r < hub_->ranks(); ++r) ranks.push_back(page.issues(r).read());
  // Asked after they were read: what had not come by then comes after all that was read of its rank.
  auto circle = findCircle(ranks, sendRoom_, [&](Rank peer, const Call& call) {
    if (!call.isMessage()) return hub_->board(peer).begun() > call.sequence;
    const auto& book = call.receives ? page.messages(call.root, peer.value) : page.messages(peer.value, call.root);
    return book.hasCome(call.receives, call.sequence);
  });
  std::atomic_thread_fence(std::memory_order_acquire);  // pairs with IssueBook::close()
  // A rank that has captured in the meantime may have taken back what it had said of its messages.
  if (std::ranges::any_of(circle, [&](const Blocked& one) { return page.issues(one.rank.value).isClosed(); })) return {};
  return circle;
}

/// Suspects are those of a circle that was seen twice in a row: all of them had lacked the next one's part at one time between. They are
/// held up for good when each has looked twice more since and nothing had come, for who is held up offers nothing else.
std::vector<Blocked> DeviceCircles::searchHeldUp(const Page& page) {
  const auto first = readHeldUp(page);
  const std::vector<Rank> circle = circleOfHeldUp(first, rank_);
  if (circle.empty()) {
    suspects_.clear();
    return {};
  }
  const auto second = readHeldUp(page);
  const auto areStill = [&](const HeldUpRanks& before) {
    return std::ranges::all_of(circle, [&](Rank r) { return isStill(find(before, r), find(second, r)); });
  };
  if (!areStill(first)) return {};
  if (!areStill(suspects_)) {
    suspects_ = second;
    return {};
  }
  std::vector<Blocked> blocked;
  for (const Rank r : circle) {
    const IssueBook::HeldUp* const before = find(suspects_, r);
    const IssueBook::HeldUp* const held = find(second, r);
    if (before == nullptr || held == nullptr || held->looks < before->looks + 2) return {};
    IssuedCalls calls = page.issues(r.value).read();
    std::erase_if(calls, [&](const IssueBook::Issued& one) { return one.group != held->group; });
    if (held->place >= calls.size()) return {};  // of a group that is longer than its book
    blocked.push_back({r, calls[held->place].call, held->missing});
  }
  return blocked;
}

}  // namespace tutti::comm
