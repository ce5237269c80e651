// Graphs whose communicators end: in every way, before and after the graphs, whether these run, wait or are launched once more.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "conformance/gpu/rank_lives.h"
#include "core/format.h"

namespace tutti::conformance::graphs_end_test {
namespace {

using driver::cuda::Error;
using driver::cuda::Graph;
using faults::kSlow;
using faults::Stopwatch;

constexpr size_t kCount = 5000;

/// What becomes of a graph until, and after, its communicator ends.
enum class Use { Idle, Launched, ReplayedAfter, ReplayedBetween };

struct Ending {
  End end;
  Use use;
  bool isGraphFirst;  ///< destroyed before the communicator ends
};

std::vector<Ending> endings() {
  std::vector<Ending> all;
  for (const End end : {End::Destroy, End::Finalize, End::Abort})
    for (const Use use : {Use::Idle, Use::Launched, Use::ReplayedAfter, Use::ReplayedBetween})
      for (const bool isGraphFirst : {false, true})
        if (!isGraphFirst || use == Use::Idle || use == Use::Launched) all.push_back({end, use, isGraphFirst});
  return all;
}

std::string nameOf(const Ending& e) {
  constexpr const char* kUses[] = {"Idle", "Launched", "ReplayedAfter", "ReplayedBetween"};
  return format("{}{}{}", conformance::nameOf(e.end), kUses[static_cast<int>(e.use)], e.isGraphFirst ? "GraphFirst" : "");
}

class GpuGraphEnds : public testing::TestWithParam<Ending> {
 protected:
  static constexpr int kRanks = 3;

  void live(int rank, ncclComm_t comm) {
    const Ending& e = GetParam();
    const Graph graph = lives.capture(rank, [&] { ASSERT_EQ(lives.sumAll(rank, comm), ncclSuccess) << ncclGetLastError(comm); });
    lives.meet();
    if (e.use == Use::Launched) lives.replay(graph, rank);
    if (e.isGraphFirst) lives.destroy(graph);
    const bool isEarly = e.use == Use::ReplayedBetween && rank == 0;
    if (e.use != Use::ReplayedBetween || isEarly) end(comm);
    if (e.use == Use::Launched) {
      if (e.end == End::Abort) {
        EXPECT_EQ(gpus.driver().streamQuery(lives.stream(rank)), Error::Success) << "kernels have ended";
      }
      lives.await(rank);
      if (e.end != End::Abort) lives.expectAll(rank, kRanks, "before the end");
    }
    lives.meet();
    if (e.use >= Use::ReplayedAfter) replayAgain(graph, rank);
    lives.meet();
    if (e.use == Use::ReplayedBetween && !isEarly) end(comm);
    lives.meet();
    if (!e.isGraphFirst) lives.destroy(graph);
  }

  FakeGpus gpus{kRanks};
  RankLives lives{gpus, kRanks, kCount};

 private:
  void end(ncclComm_t comm) {
    const Stopwatch watch;
    EXPECT_EQ(endBy(GetParam().end, comm), ncclSuccess) << ncclGetLastError(nullptr);
    EXPECT_LT(watch.seconds(), kSlow) << "nobody waits for graphs";
  }
  /// Of an aborted communicator nothing more is promised than that it ends.
  void replayAgain(Graph graph, int rank) {
    int value = 1;
    for (int times = 0; times < 2; ++times) {
      lives.replay(graph, rank);
      lives.await(rank);
      value *= kRanks;
      if (GetParam().end != End::Abort) lives.expectAll(rank, value, "after the end");
    }
  }
};

TEST_P(GpuGraphEnds, NobodyHangsAndNothingIsLeft) {
  lives.liveOnce();
  const Level before = lives.level();
  const ncclUniqueId id = RankLives::newId();
  lives.run(nameOf(GetParam()), [&](int rank) { live(rank, lives.join(id, rank)); });
  lives.liveOnce();
  EXPECT_EQ(lives.level(), before) << gpus.alive();
}

INSTANTIATE_TEST_SUITE_P(Ends, GpuGraphEnds, testing::ValuesIn(endings()), [](const auto& param) { return nameOf(param.param); });

// One rank alone has launched its graph, so its kernel waits until another rank aborts.
TEST(GpuGraphAbort, EndsAGraphThatWaits) {
  FakeGpus gpus(2);
  RankLives lives(gpus, 2, kCount);
  const ncclUniqueId id = RankLives::newId();
  lives.run("an abort of a graph that waits", [&](int rank) {
    const ncclComm_t comm = lives.join(id, rank);
    const Graph graph = lives.capture(rank, [&] { ASSERT_EQ(lives.sumAll(rank, comm), ncclSuccess) << ncclGetLastError(comm); });
    lives.meet();
    if (rank == 0) {
      lives.replay(graph, rank);
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      EXPECT_EQ(gpus.driver().streamQuery(lives.stream(rank)), Error::NotReady);
    }
    lives.meet();
    if (rank == 1) {
      EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    } else {
      EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclRemoteError);
      lives.await(rank);
      EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    }
    lives.destroy(graph);
  });
}

/// A parent and its child, with a graph of each: one of them ends first, in some way.
struct Family {
  End end;
  bool isParentFirst;
  bool shares;  ///< splitShare
};

std::vector<Family> families() {
  std::vector<Family> all;
  for (const End end : {End::Destroy, End::Finalize, End::Abort})
    for (const bool isParentFirst : {false, true})
      for (const bool shares : {false, true}) all.push_back({end, isParentFirst, shares});
  return all;
}

class GpuGraphFamilies : public testing::TestWithParam<Family> {
 protected:
  static constexpr int kRanks = 4;

  ncclComm_t joinParent(const ncclUniqueId& id, int rank) const {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.splitShare = GetParam().shares ? 1 : 0;
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, kRanks, id, rank, &config), ncclSuccess) << ncclGetLastError(nullptr);
    return comm;
  }

  void live(int rank, ncclComm_t parent) {
    const Family& family = GetParam();
    ncclComm_t child = nullptr;
    ASSERT_EQ(ncclCommSplit(parent, rank % 2, rank, &child, nullptr), ncclSuccess) << ncclGetLastError(parent);
    const Graph ofParent = lives.capture(rank, [&] { ASSERT_EQ(lives.sumAll(rank, parent), ncclSuccess) << ncclGetLastError(parent); });
    const Graph ofChild = lives.capture(rank, [&] { ASSERT_EQ(lives.sumAll(rank, child), ncclSuccess) << ncclGetLastError(child); });
    int value = 1;
    const auto play = [&](Graph graph, int factor, bool isRight) {
      lives.meet();
      lives.replay(graph, rank);
      lives.await(rank);
      value *= factor;
      if (isRight) lives.expectAll(rank, value, "a replay");
    };
    play(ofParent, kRanks, true);
    play(ofChild, 2, true);
    lives.meet();
    EXPECT_EQ(endBy(family.end, family.isParentFirst ? parent : child), ncclSuccess);
    const bool isGood = family.end != End::Abort;
    // The other one goes on, but where it shares the fate of one that was aborted.
    const ncclComm_t other = family.isParentFirst ? child : parent;
    const bool goesOn = isGood || !family.shares;
    play(family.isParentFirst ? ofParent : ofChild, family.isParentFirst ? kRanks : 2, isGood);
    lives.fill(rank, value = 1);
    play(family.isParentFirst ? ofChild : ofParent, family.isParentFirst ? 2 : kRanks, goesOn);
    lives.meet();
    EXPECT_EQ(lives.sumAll(rank, other), goesOn ? ncclSuccess : ncclRemoteError) << ncclGetLastError(other);
    lives.await(rank);
    if (goesOn) lives.expectAll(rank, family.isParentFirst ? 4 : kRanks * kRanks, "a call of the other");
    lives.meet();
    EXPECT_EQ(endBy(family.end, other), ncclSuccess);
    for (const Graph graph : {ofParent, ofChild}) play(graph, 1, false);
    lives.meet();
    for (const Graph graph : {ofChild, ofParent}) lives.destroy(graph);
  }

  FakeGpus gpus{kRanks};
  RankLives lives{gpus, kRanks, kCount};
};

TEST_P(GpuGraphFamilies, TheOtherGoesOnAndNothingIsLeft) {
  lives.liveOnce();
  const Level before = lives.level();
  const ncclUniqueId id = RankLives::newId();
  lives.run("a family", [&](int rank) { live(rank, joinParent(id, rank)); });
  lives.liveOnce();
  EXPECT_EQ(lives.level(), before) << gpus.alive();
}

INSTANTIATE_TEST_SUITE_P(Ends, GpuGraphFamilies, testing::ValuesIn(families()), [](const auto& param) {
  const Family& f = param.param;
  return format("{}{}{}", conformance::nameOf(f.end), f.isParentFirst ? "ParentFirst" : "ChildFirst", f.shares ? "Shared" : "");
});

/// Two graphs, each with calls of two communicators by turns, all of this thread.
class GpuGraphOrders : public testing::Test {
 protected:
  static constexpr int kRanks = 2;
  static constexpr size_t kEvents = 4;  ///< the ends of communicators 0 and 1, then of graphs 0 and 1
  using Comms = std::array<ncclComm_t, kRanks>;
  using Graphs = std::array<Graph, kRanks>;

  void open() {
    for (Comms& comms : both) ASSERT_EQ(ncclCommInitAll(comms.data(), kRanks, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
  }
  void callOn(const Comms& comms) {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (int r = 0; r < kRanks; ++r) ASSERT_EQ(lives.sumAll(r, comms[static_cast<size_t>(r)]), ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  }
  Graphs capture(const std::vector<size_t>& which) {
    Graphs graphs{};
    for (int r = 0; r < kRanks; ++r) EXPECT_EQ(gpus.driver().beginCapture(lives.stream(r)), Error::Success);
    for (const size_t w : which) callOn(both[w]);
    for (int r = 0; r < kRanks; ++r) EXPECT_EQ(gpus.driver().endCapture(lives.stream(r), &graphs[static_cast<size_t>(r)]), Error::Success);
    return graphs;
  }
  void replay(const Graphs& graphs) {
    for (int r = 0; r < kRanks; ++r) {
      const UseGpu use(gpus, r);
      lives.replay(graphs[static_cast<size_t>(r)], r);
    }
  }
  void await() {
    for (int r = 0; r < kRanks; ++r) {
      const UseGpu use(gpus, r);
      lives.await(r);
    }
  }
  void end(const Comms& comms, End how) {
    for (const ncclComm_t comm : comms) EXPECT_EQ(endBy(how, comm), ncclSuccess) << ncclGetLastError(nullptr);
  }

  FakeGpus gpus{kRanks};
  RankLives lives{gpus, kRanks, kCount};
  std::array<Comms, 2> both{};
};

TEST_F(GpuGraphOrders, WhateverIsLeftComputes) {
  lives.liveOnce();
  const Level before = lives.level();
  std::array<size_t, kEvents> order = {0, 1, 2, 3};
  do {
    open();
    const std::array<Graphs, 2> graphs = {capture({0, 1, 0}), capture({1, 0, 1})};
    std::array<bool, kEvents> isGone{};
    std::string when = "order";
    for (const size_t event : order) {
      when += format(" {}", event);
      int value = 1;
      for (int r = 0; r < kRanks; ++r) lives.fill(r, 1);
      for (int turn = 0; turn < 2; ++turn) {  // nothing is waited for in between
        for (size_t k = 0; k < 2; ++k) {
          if (!isGone[2 + k]) replay(graphs[k]);
          if (!isGone[2 + k]) value *= 8;
          if (!isGone[k]) callOn(both[k]);
          if (!isGone[k]) value *= 2;
        }
      }
      isGone[event] = true;
      if (event < 2) {
        end(both[event], event == 0 ? End::Destroy : End::Finalize);  // while what was launched may still run
        await();
      } else {
        await();
        for (const Graph graph : graphs[event - 2]) lives.destroy(graph);
      }
      for (int r = 0; r < kRanks; ++r) lives.expectAll(r, value, when);
    }
    ASSERT_FALSE(HasFailure()) << when;
  } while (std::ranges::next_permutation(order).found);
  lives.liveOnce();
  EXPECT_EQ(lives.level(), before) << gpus.alive();
}

// Works of a communicator that was aborted end at once, and those of the other one in the same graph all the same.
TEST_F(GpuGraphOrders, AnAbortOfOneLetsGraphsOfBothEnd) {
  lives.liveOnce();
  const Level before = lives.level();
  open();
  const std::array<Graphs, 2> graphs = {capture({0, 1, 0}), capture({1, 0, 1})};
  runWithin(10 * kSlow, "graphs with an aborted communicator", [&] {
    for (const Graphs& g : graphs) replay(g);
    end(both[0], End::Abort);
    for (const Graphs& g : graphs) replay(g);
    await();
    for (int r = 0; r < kRanks; ++r) lives.fill(r, 1);
    callOn(both[1]);
    await();
    for (int r = 0; r < kRanks; ++r) lives.expectAll(r, kRanks, "the other one goes on");
    end(both[1], End::Destroy);
  });
  for (const Graphs& g : graphs)
    for (const Graph graph : g) lives.destroy(graph);
  lives.liveOnce();
  EXPECT_EQ(lives.level(), before) << gpus.alive();
}

}  // namespace
}  // namespace tutti::conformance::graphs_end_test
