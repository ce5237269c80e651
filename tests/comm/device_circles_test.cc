// Circles among issued calls: what can go on is never taken for one, and what cannot is always found, compared with carrying the calls out.
#include "comm/device_circles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "exec/host/signature.h"

namespace tutti::comm::device_circles_test {
namespace {

using exec::host::Blocked;

constexpr uint64_t kSendRoom = 1000;

Call collective(uint64_t sequence, Collective kind = Collective::AllReduce, int32_t root = 0) {
  return {kind, DataType::I8, 0, root, 100, sequence, false};
}
Call send(int32_t to, uint64_t number, uint64_t bytes = 5000) { return {Collective::SendRecv, DataType::I8, 0, to, bytes, number, false}; }
Call receive(int32_t from, uint64_t number, uint64_t bytes = 5000) {
  return {Collective::SendRecv, DataType::I8, 0, from, bytes, number, true};
}

/// All that ranks have issued is at hand.
std::vector<Blocked> circleOf(const std::vector<IssuedCalls>& ranks) {
  return findCircle(ranks, kSendRoom, [](Rank, const Call&) { return false; });
}

TEST(DeviceCircles, ASendAgainstACollective) {
  const auto circle = circleOf({{{1, send(1, 0)}}, {{1, collective(0)}}});
  ASSERT_EQ(circle.size(), 2u);
  for (const Blocked& one : circle) {
    EXPECT_EQ(one.call, one.rank == Rank(0) ? send(1, 0) : collective(0));
    EXPECT_EQ(one.peer, Rank(1 - one.rank.value));
  }
}

TEST(DeviceCircles, WhoIsLateIsNoCircle) {
  EXPECT_TRUE(circleOf({{{1, receive(1, 0)}}, {}}).empty()) << "nothing is known of it";
  EXPECT_TRUE(circleOf({{{1, collective(0)}, {2, receive(1, 0)}}, {{1, collective(0)}}}).empty());
  EXPECT_TRUE(circleOf({{{1, receive(1, 0)}, {2, collective(0)}}, {{1, send(0, 0)}}}).empty());
}

TEST(DeviceCircles, ASendThatFitsWaitsForNobody) {
  EXPECT_TRUE(circleOf({{{1, send(1, 0, kSendRoom)}}, {{1, collective(0)}}}).empty());
  EXPECT_FALSE(circleOf({{{1, send(1, 0, kSendRoom + 1)}}, {{1, collective(0)}}}).empty());
}

TEST(DeviceCircles, CallsOfAGroupWaitForNoOneOfIt) {
  EXPECT_TRUE(circleOf({{{1, send(1, 0)}, {1, receive(1, 0)}}, {{1, send(0, 0)}, {1, receive(0, 0)}}}).empty());
  EXPECT_EQ(circleOf({{{1, send(1, 0)}, {2, receive(1, 0)}}, {{1, send(0, 0)}, {2, receive(0, 0)}}}).size(), 2u);
}

TEST(DeviceCircles, WhoOnlyGivesWaitsForNobody) {
  const Call out = collective(0, Collective::Broadcast, 0);
  EXPECT_TRUE(circleOf({{{1, out}}, {{1, receive(0, 0)}}}).empty()) << "the root may go on to send";
  EXPECT_FALSE(circleOf({{{1, receive(1, 0)}}, {{1, out}}}).empty());
  const Call in = collective(0, Collective::Reduce, 0);
  EXPECT_TRUE(circleOf({{{1, receive(1, 0)}}, {{1, in}}}).empty());
  EXPECT_FALSE(circleOf({{{1, in}}, {{1, receive(0, 0)}}}).empty());
}

TEST(DeviceCircles, WhatMayHaveBeenIssuedLongAgoIsNotMissing) {
  const std::vector<IssuedCalls> ranks{{{7, send(1, 3)}}, {{9, collective(5)}}};
  EXPECT_FALSE(findCircle(ranks, kSendRoom, [](Rank, const Call&) { return false; }).empty());
  EXPECT_TRUE(findCircle(ranks, kSendRoom, [](Rank peer, const Call& call) {
                return peer == Rank(1) && call.isMessage() && call.receives && call.sequence == 3;
              }).empty());
  EXPECT_TRUE(findCircle(ranks, kSendRoom, [](Rank peer, const Call& call) { return peer == Rank(0) && call == collective(5); }).empty());
}

/// Carries calls out, as GPUs would: a group begins when the one before it has ended, and a call ends when those parts of it that it needs
/// have begun. Parts that nobody has issued come after all others, together.
class Machine {
 public:
  explicit Machine(const std::vector<IssuedCalls>& ranks) : ranks_(ranks.size()) {
    for (size_t r = 0; r < ranks.size(); ++r)
      for (const auto& [group, call] : ranks[r]) {
        if (ranks_[r].empty() || ranks_[r].back().number != group) ranks_[r].push_back({group, {}});
        ranks_[r].back().calls.push_back(call);
      }
    std::vector<std::set<Key>> lacking(ranks.size());
    for (size_t r = 0; r < ranks.size(); ++r)
      for (const auto& one : ranks[r])
        for (const auto& [peer, key] : partsOf(r, one.call))
          if (!has(peer, key)) lacking[peer].insert(key);
    for (size_t r = 0; r < ranks.size(); ++r)
      for (const Key& key : lacking[r]) later_[r].insert(key);
  }

  bool runsToItsEnd() {
    std::vector<size_t> ended(ranks_.size());
    for (bool moves = true; moves;) {
      moves = false;
      for (size_t r = 0; r < ranks_.size(); ++r) {
        if (ended[r] == ranks_[r].size()) continue;
        const auto& calls = ranks_[r][ended[r]].calls;
        const bool ends = std::ranges::all_of(calls, [&](const Call& call) {
          return std::ranges::all_of(partsOf(r, call), [&](const auto& part) { return hasBegun(part.first, part.second, ended); });
        });
        if (ends) moves = ++ended[r] > 0;
      }
    }
    for (size_t r = 0; r < ranks_.size(); ++r)
      if (ended[r] < ranks_[r].size()) return false;
    return true;
  }

 private:
  using Key = std::tuple<int32_t, bool, uint64_t>;  ///< peer or -1, receives, number
  struct Group {
    uint64_t number;
    std::vector<Call> calls;
  };
  static Key keyOf(const Call& call) { return {call.isMessage() ? call.root : -1, call.receives, call.sequence}; }

  std::vector<std::pair<size_t, Key>> partsOf(size_t rank, const Call& call) const {
    std::vector<std::pair<size_t, Key>> parts;
    if (call.isMessage()) {
      if (call.receives || call.count > kSendRoom)
        parts.push_back({static_cast<size_t>(call.root), {static_cast<int32_t>(rank), !call.receives, call.sequence}});
      return parts;
    }
    for (size_t p = 0; p < ranks_.size(); ++p)
      if (p != rank) parts.push_back({p, keyOf(call)});
    return parts;
  }
  bool has(size_t rank, const Key& key) const {
    return std::ranges::any_of(ranks_[rank], [&](const Group& group) {
      return std::ranges::any_of(group.calls, [&](const Call& call) { return keyOf(call) == key; });
    });
  }
  bool hasBegun(size_t rank, const Key& key, const std::vector<size_t>& ended) const {
    if (later_.contains(rank) && later_.at(rank).contains(key)) return ended[rank] == ranks_[rank].size();
    for (size_t g = 0; g < std::min(ended[rank] + 1, ranks_[rank].size()); ++g)
      for (const Call& call : ranks_[rank][g].calls)
        if (keyOf(call) == key) return true;
    return false;
  }

  std::vector<std::vector<Group>> ranks_;
  std::map<size_t, std::set<Key>> later_;
};

/// Of what ranks do together in one order, what each has issued of it so far; `swaps`: and how often two neighbours of one rank change
/// places.
std::vector<IssuedCalls> randomCalls(std::mt19937& random, int32_t ranks, int swaps) {
  std::vector<std::vector<Call>> calls(static_cast<size_t>(ranks));
  std::map<std::pair<int32_t, int32_t>, uint64_t> messages;
  uint64_t collectives = 0;
  for (uint64_t i = 0, all = 1 + random() % 12; i < all; ++i) {
    if (random() % 3 == 0) {
      for (auto& own : calls) own.push_back(collective(collectives));
      ++collectives;
      continue;
    }
    const auto from = static_cast<int32_t>(random() % static_cast<uint32_t>(ranks));
    const auto to = static_cast<int32_t>((from + 1 + static_cast<int32_t>(random() % static_cast<uint32_t>(ranks - 1))) % ranks);
    const uint64_t number = messages[{from, to}]++, bytes = random() % 3 == 0 ? 10 : 5000;
    calls[static_cast<size_t>(from)].push_back(send(to, number, bytes));
    calls[static_cast<size_t>(to)].push_back(receive(from, number, bytes));
  }
  for (; swaps > 0; --swaps) {
    auto& own = calls[random() % calls.size()];
    if (own.size() < 2) continue;
    const size_t at = random() % (own.size() - 1);
    std::swap(own[at], own[at + 1]);
  }
  std::vector<IssuedCalls> issued(calls.size());
  for (size_t r = 0; r < calls.size(); ++r) {
    uint64_t group = 1;
    const size_t count = random() % 2 == 0 ? calls[r].size() : random() % (calls[r].size() + 1);
    for (size_t i = 0; i < count; ++i) {
      issued[r].push_back({group, calls[r][i]});
      if (random() % 3 != 0) ++group;
    }
  }
  return issued;
}

/// What is left of books that have gone on: of each rank the latest calls, and all names of those before.
struct Cut {
  std::vector<IssuedCalls> books;
  std::vector<IssuedCalls> gone;
};
Cut cut(std::mt19937& random, const std::vector<IssuedCalls>& ranks) {
  Cut all{ranks, std::vector<IssuedCalls>(ranks.size())};
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto before = ranks[r].begin() + static_cast<std::ptrdiff_t>(random() % (ranks[r].size() + 1));
    all.gone[r].assign(ranks[r].begin(), before);
    all.books[r].assign(before, ranks[r].end());
  }
  return all;
}

std::string describe(const std::vector<IssuedCalls>& ranks) {
  std::string text;
  for (size_t r = 0; r < ranks.size(); ++r) {
    text += "rank " + std::to_string(r) + ":";
    for (const auto& [group, call] : ranks[r]) text += " " + std::to_string(group) + ":" + exec::host::describeCall(call);
    text += "\n";
  }
  return text;
}

TEST(DeviceCircles, WhatRanksDoInOneOrderIsNone) {
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const auto ranks = randomCalls(random, 2 + static_cast<int32_t>(random() % 4), 0);
    ASSERT_TRUE(circleOf(ranks).empty()) << describe(ranks);
  }
}

TEST(DeviceCircles, ThereIsOneExactlyWhereCarryingThemOutComesToNoEnd) {
  std::mt19937 random(2);
  int stuck = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto ranks = randomCalls(random, 2 + static_cast<int32_t>(random() % 4), static_cast<int>(random() % 6));
    const bool ends = Machine(ranks).runsToItsEnd();
    const auto circle = circleOf(ranks);
    ASSERT_EQ(circle.empty(), ends) << describe(ranks);
    if (ends) continue;
    ++stuck;
    ASSERT_GE(circle.size(), 2u) << describe(ranks);
    for (size_t c = 0; c < circle.size(); ++c) ASSERT_NE(circle[c].peer, circle[c].rank) << describe(ranks);
    EXPECT_EQ(exec::host::explainCircle(circle).cause.code(), Code::InvalidUsage) << describe(ranks);
  }
  EXPECT_GT(stuck, 1000);
}

TEST(DeviceCircles, WhatBooksHaveLostIsNotTakenForMissing) {
  std::mt19937 random(3);
  int stuck = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto ranks = randomCalls(random, 2 + static_cast<int32_t>(random() % 4), static_cast<int>(random() % 6));
    const Cut left = cut(random, ranks);
    const auto hasCome = [&](Rank peer, const Call& part) {
      return std::ranges::any_of(left.gone[static_cast<size_t>(peer.value)], [&](const auto& one) {
        return one.call.isMessage() == part.isMessage() && one.call.sequence == part.sequence &&
               (!part.isMessage() || (one.call.root == part.root && one.call.receives == part.receives));
      });
    };
    const auto circle = findCircle(left.books, kSendRoom, hasCome);
    if (circle.empty()) continue;
    ++stuck;
    ASSERT_FALSE(Machine(ranks).runsToItsEnd()) << describe(ranks);
  }
  EXPECT_GT(stuck, 300);
}

TEST(DeviceCircles, ManyCallsNeedNoDeepStack) {
  constexpr int32_t kRanks = 8;
  constexpr uint64_t kCalls = 511;
  std::vector<IssuedCalls> ranks(kRanks);
  for (int32_t r = 0; r < kRanks; ++r)
    for (uint64_t i = 0; i < kCalls; ++i)
      ranks[static_cast<size_t>(r)].push_back({i + 1, collective(i + kCalls * static_cast<uint64_t>(r))});
  EXPECT_TRUE(findCircle(ranks, kSendRoom, [](Rank peer, const Call& call) {
                return call.sequence < kCalls * static_cast<uint64_t>(peer.value + 1);
              }).empty());
}

TEST(DeviceCircles, HeldUpRanksAreACircleWhenEachLacksTheNext) {
  using HeldUp = transport::device::IssueBook::HeldUp;
  const auto lacks = [](int32_t peer) { return std::optional(HeldUp{1, 0, Rank(peer), 1, 1}); };
  EXPECT_TRUE(circleOfHeldUp({lacks(1), std::nullopt}, Rank(0)).empty());
  EXPECT_EQ(circleOfHeldUp({lacks(1), lacks(0)}, Rank(0)).size(), 2u);
  EXPECT_EQ(circleOfHeldUp({lacks(1), lacks(2), lacks(0)}, Rank(1)).size(), 3u);
  EXPECT_EQ(circleOfHeldUp({lacks(1), lacks(2), lacks(1)}, Rank(0)).size(), 2u) << "0 waits for a circle";
  EXPECT_TRUE(circleOfHeldUp({lacks(1), lacks(2), std::nullopt}, Rank(0)).empty());
  EXPECT_TRUE(circleOfHeldUp({lacks(-1), lacks(0)}, Rank(1)).empty());
  EXPECT_TRUE(circleOfHeldUp({std::nullopt, lacks(0)}, Rank(0)).empty());
}

}  // namespace
}  // namespace tutti::comm::device_circles_test
