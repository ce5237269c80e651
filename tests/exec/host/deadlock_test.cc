#include "exec/host/deadlock.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace tutti::exec::host::deadlock_test {
namespace {

using transport::local::ChainWait;
using transport::local::LaneWait;
using transport::local::RankWait;
using transport::local::Waits;

/// What a test says of a state of waits, and the search over it with time that never holds it up.
class Scene {
 public:
  explicit Scene(size_t ranks) {
    state_.ranks.resize(ranks);
    for (Waits::Entry& entry : state_.ranks) {
      entry.wait.sent.resize(ranks);
      entry.wait.received.resize(ranks);
    }
  }

  /// The rank waits in message `number` to or from `peer`, with `following` more behind it.
  void message(size_t rank, int32_t peer, bool receives, uint64_t number = 0, uint64_t following = 0) {
    ChainWait& chain = publish(rank);
    chain.call = {Collective::SendRecv, DataType::I8, 0, peer, 100, number, receives};
    chain.following = following;
    RankWait& wait = state_.ranks[rank].wait;
    (receives ? wait.received : wait.sent)[static_cast<size_t>(peer)] = number + 1;
  }
  void send(size_t rank, int32_t peer, uint64_t number = 0) { message(rank, peer, false, number); }
  void receive(size_t rank, int32_t peer, uint64_t number = 0) { message(rank, peer, true, number); }

  /// The rank waits in all-reduce `number`, in one lane for each list: it waits for those ranks, and exchanges with everybody.
  void collective(size_t rank, uint64_t number, std::initializer_list<std::initializer_list<int32_t>> lanes, uint64_t following = 0) {
    ChainWait& chain = publish(rank);
    chain.call.sequence = number;
    chain.following = following;
    for (const auto& awaited : lanes) {
      LaneWait lane;
      for (const int32_t r : awaited) lane.awaits.emplace_back(r);
      for (size_t r = 0; r < state_.ranks.size(); ++r)
        if (r != rank) lane.partners.emplace_back(static_cast<int32_t>(r));
      chain.lanes.push_back(lane);
    }
    state_.ranks[rank].wait.begunCollectives = number + 1;
  }
  ChainWait& chain(size_t rank, size_t index) { return state_.ranks[rank].wait.chains[index]; }
  Waits::Entry& entry(size_t rank) { return state_.ranks[rank]; }

  std::optional<Deadlock> search() { return findDeadlock(state_, now_ += 1'000'000'000); }
  void inspectAll() {
    for (Waits::Entry& entry : state_.ranks) ++entry.inspections;
  }
  /// What comes out when everybody goes on waiting.
  std::optional<Deadlock> judge() {
    if (search()) ADD_FAILURE() << "found before anybody has confirmed it";
    inspectAll();
    if (search()) ADD_FAILURE() << "once is not enough: that look may have begun before the first";
    inspectAll();
    return search();
  }

 private:
  ChainWait& publish(size_t rank) {
    state_.ranks[rank].waits = true;
    return state_.ranks[rank].wait.chains.emplace_back();
  }
  Waits::State state_;
  int64_t now_ = 0;
};

void expectQuoted(const std::optional<Deadlock>& found, std::initializer_list<std::string_view> words) {
  ASSERT_TRUE(found);
  EXPECT_EQ(found->cause.code(), Code::InvalidUsage);
  EXPECT_EQ(found->calls.size(), 2U);
  for (const auto word : words) EXPECT_NE(found->cause.text().find(word), std::string::npos) << found->cause.text();
}

TEST(Deadlock, TwoSendsWaitForEachOther) {
  Scene scene(2);
  scene.send(0, 1);
  scene.send(1, 0);
  expectQuoted(scene.judge(), {"rank 0 called Send #0 of 100 bytes to rank 1", "rank 1 called Send #0 of 100 bytes to rank 0"});
}

TEST(Deadlock, ARankThatPublishedNothingMayDoAnything) {
  Scene scene(3);
  scene.receive(0, 1);
  scene.receive(1, 2);
  EXPECT_FALSE(scene.judge());
  scene.receive(2, 0);
  expectQuoted(scene.judge(), {"rank 0", "rank 1", "rank 2"});
}

TEST(Deadlock, WhatIsUnderWayArrives) {
  Scene scene(2);
  scene.receive(0, 1);
  scene.entry(1).wait.sent[0] = 1;  // sent, and now it waits for something else
  scene.receive(1, 0);
  EXPECT_FALSE(scene.judge());
}

TEST(Deadlock, ASendAndItsReceiveNeverStandStillForEver) {
  Scene scene(2);
  scene.send(0, 1, 5);
  scene.receive(1, 0, 5);
  EXPECT_FALSE(scene.judge());
}

TEST(Deadlock, AReceiverBehindItsSenderCatchesUp) {
  Scene scene(2);
  scene.send(0, 1, 9);
  scene.message(1, 0, true, 3, 2);  // receives 3, 4 and 5 in this work; 9 may come in a later one
  EXPECT_FALSE(scene.judge());
}

TEST(Deadlock, AMessageAgainstACollective) {
  Scene scene(2);
  scene.collective(0, 4, {{1}});
  scene.receive(1, 0);
  scene.entry(1).wait.begunCollectives = 4;
  expectQuoted(scene.judge(), {"AllReduce #4", "Recv #0 of 100 bytes from rank 0"});
}

TEST(Deadlock, WhoeverHasGoneBeyondACollectiveHasServedIt) {
  Scene scene(2);
  scene.collective(0, 4, {{1}});
  scene.receive(1, 0);
  scene.entry(1).wait.begunCollectives = 6;
  EXPECT_FALSE(scene.judge()) << "rank 0 will get what it waits for, and end";
}

TEST(Deadlock, ChainsOfOneWorkRunAtTheSameTime) {
  Scene scene(2);
  scene.collective(0, 0, {{1}});
  scene.send(0, 1);
  scene.receive(1, 0);
  scene.collective(1, 0, {{}});
  scene.chain(1, 1).lanes[0].mayMove = true;  // rank 0's part has come
  EXPECT_FALSE(scene.judge());
}

TEST(Deadlock, AWorkDoesNotEndBeforeAllItsChains) {
  Scene scene(3);
  scene.collective(0, 0, {{1}});  // waits for rank 1, whose all-reduce comes after its work
  scene.receive(1, 0);            // will come
  scene.entry(0).wait.sent[1] = 1;
  scene.receive(1, 2);  // will not
  scene.receive(2, 0);
  EXPECT_TRUE(scene.judge());
}

/// The root of a gather has served rank 1 before rank 2 comes, which waits for a message that rank 1 sends afterwards.
TEST(Deadlock, LanesOfACollectiveAreServedOneByOne) {
  Scene scene(3);
  scene.collective(0, 0, {{}, {2}});
  scene.chain(0, 0).lanes[0].mayMove = true;
  scene.chain(0, 0).lanes[0].partners = {Rank(1)};
  scene.chain(0, 0).lanes[1].partners = {Rank(2)};
  scene.collective(1, 0, {{0}});
  scene.receive(2, 1);
  EXPECT_FALSE(scene.judge());
  scene.chain(0, 0).lanes[0].partners = {Rank(1), Rank(2)};
  scene.chain(0, 0).lanes[1].partners = {Rank(1), Rank(2)};
  EXPECT_FALSE(scene.judge()) << "either lane may be the one that serves rank 1";
}

TEST(Deadlock, ALaneMayWaitForAnotherOfItsRank) {
  Scene scene(2);
  scene.collective(0, 0, {{1}, {}});
  scene.chain(0, 0).lanes[1].ownLane = 0;
  scene.receive(1, 0);
  EXPECT_TRUE(scene.judge());
  Scene other(2);
  other.collective(0, 0, {{}, {}});
  other.chain(0, 0).lanes[0].mayMove = true;
  other.chain(0, 0).lanes[1].ownLane = 0;
  other.receive(1, 0);
  EXPECT_FALSE(other.judge());
}

TEST(Deadlock, ANewEpisodeStartsAnew) {
  Scene scene(2);
  scene.send(0, 1);
  scene.send(1, 0);
  EXPECT_FALSE(scene.search());
  scene.inspectAll();
  scene.inspectAll();
  ++scene.entry(1).episode;  // it moved in between
  EXPECT_FALSE(scene.search());
  scene.inspectAll();
  scene.inspectAll();
  EXPECT_TRUE(scene.search());
}

TEST(Deadlock, EverySuspectConfirms) {
  Scene scene(2);
  scene.send(0, 1);
  scene.send(1, 0);
  EXPECT_FALSE(scene.search());
  for (int i = 0; i < 5; ++i) {
    ++scene.entry(0).inspections;
    EXPECT_FALSE(scene.search()) << "rank 1 has not looked again";
  }
  scene.inspectAll();
  scene.inspectAll();
  EXPECT_TRUE(scene.search());
}

TEST(Deadlock, NamesTwoThatBlockEachOtherAndNotThoseBehindThem) {
  Scene scene(4);
  scene.receive(0, 1);
  scene.receive(1, 2);
  scene.send(2, 3);
  scene.send(3, 2);
  const auto found = scene.judge();
  expectQuoted(found, {"rank 2 called Send", "rank 3 called Send"});
  EXPECT_EQ(found->cause.text().find("rank 0"), std::string::npos) << found->cause.text();
}

TEST(Deadlock, ThoseWhoJoinASearchLaterDoNotConfuseIt) {
  Scene scene(3);
  scene.collective(1, 1, {{0}, {2}});
  scene.receive(2, 1);
  EXPECT_FALSE(scene.search());
  scene.collective(0, 0, {{2}});  // rank 1 now waits in vain for rank 0 too
  scene.inspectAll();
  scene.inspectAll();
  expectQuoted(scene.search(), {"AllReduce #1", "Recv #0"});
}

}  // namespace
}  // namespace tutti::exec::host::deadlock_test
