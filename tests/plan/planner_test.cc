#include "plan/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "algo/sendrecv.h"
#include "connect/channels.h"
#include "plan/host_sizes.h"

namespace tutti::plan::planner_test {
namespace {

using algo::Kind;
using exec::host::BoundLane;
using exec::host::BoundStep;
using exec::host::HostPlan;
using transport::local::Hub;

/// The planner of each rank of a communicator.
struct Ranks {
  explicit Ranks(int32_t ranks, const Settings& settings = {}) : hub(*Hub::make(ranks)), layout(connect::Layout::natural(ranks)) {
    for (int32_t r = 0; r < ranks; ++r) {
      connections.push_back(std::make_unique<connect::Connections>(*hub, Rank(r)));
      planners.push_back(std::make_unique<Planner>(layout, *connections.back(), Rank(r), settings));
    }
  }
  std::shared_ptr<const HostPlan> plan(int32_t rank, const Shape& shape) {
    auto plan = planners[static_cast<size_t>(rank)]->makePlan(shape);
    EXPECT_TRUE(plan) << (plan ? "" : plan.error().text());
    return plan ? *plan : nullptr;
  }
  int32_t size() const { return layout.ranks(); }

  std::shared_ptr<Hub> hub;
  connect::Layout layout;
  std::vector<std::unique_ptr<connect::Connections>> connections;
  std::vector<std::unique_ptr<Planner>> planners;
};

Settings only(std::string_view algorithm) {
  Settings settings;
  auto filter = tune::Filter::parse("TUTTI_ALGO", algorithm, tune::tuttiAlgorithmNames());
  EXPECT_TRUE(filter);
  if (filter) settings.restrictions.tutti = *filter;
  return settings;
}

Shape shapeOf(Collective collective, uint64_t count, DataType type = DataType::F32, int32_t root = 0) {
  Shape shape;
  shape.collective = collective;
  shape.count = count;
  shape.type = type;
  shape.root = Rank(root);
  return shape;
}

size_t countSteps(const HostPlan& plan) {
  size_t steps = 0;
  for (const auto& lanes : plan.channels)
    for (const BoundLane& lane : lanes) steps += lane.steps.size();
  return steps;
}

size_t countMessages(const HostPlan& plan) {
  size_t messages = 0;
  for (const auto& lanes : plan.channels)
    for (const BoundLane& lane : lanes)
      for (const BoundStep& step : lane.steps) messages += static_cast<size_t>(step.numTo);
  return messages;
}

const int32_t kRankCounts[] = {1, 2, 3, 4, 5, 8, 13};

TEST(Planner, RingPlansHaveOneStepAHop) {
  for (const int32_t n : kRankCounts) {
    SCOPED_TRACE(n);
    Ranks ranks(n, only("ring"));
    for (int32_t r = 0; r < n; ++r) {
      const auto once = static_cast<size_t>(n);
      const auto allReduce = ranks.plan(r, shapeOf(Collective::AllReduce, 1000));
      EXPECT_EQ(allReduce->algorithm, "ring");
      ASSERT_EQ(allReduce->channels.size(), 1U);
      ASSERT_EQ(allReduce->channels[0].size(), 1U);
      EXPECT_EQ(countSteps(*allReduce), n == 1 ? 1 : 2 * once - 1);
      EXPECT_EQ(countMessages(*allReduce), 2 * (once - 1));
      EXPECT_NE(allReduce->reduceFn, nullptr);
      EXPECT_EQ(countSteps(*ranks.plan(r, shapeOf(Collective::ReduceScatter, 1000))), once);
      const auto allGather = ranks.plan(r, shapeOf(Collective::AllGather, 1000));
      EXPECT_EQ(countSteps(*allGather), once);
      EXPECT_EQ(allGather->reduceFn, nullptr) << "nothing to reduce";
      EXPECT_EQ(countSteps(*ranks.plan(r, shapeOf(Collective::Broadcast, 1000))), 1U);
      EXPECT_EQ(countSteps(*ranks.plan(r, shapeOf(Collective::Reduce, 1000))), 1U);
    }
  }
}

TEST(Planner, ARootedRingEndsBeforeOrAtItsRoot) {
  Ranks ranks(5, only("ring"));
  for (int32_t root = 0; root < 5; ++root) {
    for (int32_t r = 0; r < 5; ++r) {
      const auto broadcast = ranks.plan(r, shapeOf(Collective::Broadcast, 100, DataType::F32, root));
      const BoundStep& down = broadcast->channels[0][0].steps[0];
      EXPECT_EQ(down.numFrom, r == root ? 0 : 1);
      EXPECT_EQ(down.numTo, (r + 1) % 5 == root ? 0 : 1);
      const auto reduce = ranks.plan(r, shapeOf(Collective::Reduce, 100, DataType::F32, root));
      const BoundStep& up = reduce->channels[0][0].steps[0];
      EXPECT_EQ(up.numFrom, r == (root + 1) % 5 ? 0 : 1);
      EXPECT_EQ(up.numTo, r == root ? 0 : 1);
      EXPECT_EQ(up.dst.buffer, r == root ? algo::Buffer::Out : algo::Buffer::None) << "only the root has an output";
    }
  }
}

TEST(Planner, TreePlansHaveFourLanes) {
  for (const int32_t n : kRankCounts) {
    SCOPED_TRACE(n);
    Ranks ranks(n, only("tree"));
    size_t sent = 0;
    for (int32_t r = 0; r < n; ++r) {
      const auto plan = ranks.plan(r, shapeOf(Collective::AllReduce, 1000));
      EXPECT_EQ(plan->algorithm, "tree");
      ASSERT_EQ(plan->channels[0].size(), 4U);
      EXPECT_LE(countSteps(*plan), 6U) << "up, down, and the hand-over at a root";
      sent += countMessages(*plan);
    }
    EXPECT_EQ(sent, 4 * static_cast<size_t>(n - 1)) << "every edge of two trees, up and down";
  }
}

TEST(Planner, OneShotPlansUseTheWindowOnly) {
  for (const int32_t n : kRankCounts) {
    SCOPED_TRACE(n);
    Ranks ranks(n, only("oneshot"));
    for (int32_t r = 0; r < n; ++r) {
      const auto plan = ranks.plan(r, shapeOf(Collective::AllReduce, 100));
      EXPECT_TRUE(plan->usesWindow);
      EXPECT_EQ(countSteps(*plan), 3 * static_cast<size_t>(n - 1) + 2) << "store, arrive, await for each peer; own store, reduce";
      for (const BoundStep& step : plan->channels[0][0].steps) {
        ASSERT_NE(step.kind, Kind::Pipe);
        ASSERT_NE(step.window, nullptr);
        if (step.kind == Kind::Await) {
          EXPECT_NE(step.peer, Rank(r));
        }
      }
    }
  }
}

TEST(Planner, AllToAllGathersAndScattersHaveALaneForEachMessage) {
  for (const int32_t n : kRankCounts) {
    SCOPED_TRACE(n);
    Ranks ranks(n, only("alltoall:p2p"));
    const auto others = static_cast<size_t>(n - 1);
    for (int32_t r = 0; r < n; ++r) {
      const auto all = ranks.plan(r, shapeOf(Collective::AllToAll, 10));
      EXPECT_EQ(all->channels[0].size(), 2 * others + 1);
      EXPECT_EQ(countSteps(*all), 2 * others + 1);
      EXPECT_EQ(countMessages(*all), others);
      const int32_t root = n - 1;
      EXPECT_EQ(countSteps(*ranks.plan(r, shapeOf(Collective::Gather, 10, DataType::F32, root))), r == root ? others + 1 : 1);
      EXPECT_EQ(countMessages(*ranks.plan(r, shapeOf(Collective::Gather, 10, DataType::F32, root))), r == root ? 0U : 1U);
      EXPECT_EQ(countSteps(*ranks.plan(r, shapeOf(Collective::Scatter, 10, DataType::F32, root))), r == root ? others + 1 : 1);
      EXPECT_EQ(countMessages(*ranks.plan(r, shapeOf(Collective::Scatter, 10, DataType::F32, root))), r == root ? others : 0U);
    }
  }
}

TEST(Planner, AMessageHasOneLaneAtEachSide) {
  Ranks ranks(3);
  Shape send = shapeOf(Collective::SendRecv, 100, DataType::I8, 2);
  const auto sends = ranks.plan(0, send);
  ASSERT_EQ(sends->channels[0].size(), 2U);
  EXPECT_EQ(sends->channels[0][0].steps.size(), 1U);
  EXPECT_TRUE(sends->channels[0][1].steps.empty());
  EXPECT_EQ(sends->channels[0][0].sendEnds.size(), 1U);
  Shape receive = shapeOf(Collective::SendRecv, 100, DataType::I8, 0);
  receive.receives = true;
  const auto receives = ranks.plan(2, receive);
  EXPECT_TRUE(receives->channels[0][0].steps.empty());
  ASSERT_EQ(receives->channels[0][1].steps.size(), 1U);
  EXPECT_EQ(receives->channels[0][1].sources[0].rank, Rank(0));

  const auto self = ranks.plan(1, shapeOf(Collective::SendRecv, 100, DataType::I8, 1));
  EXPECT_EQ(countSteps(*self), 1U);
  EXPECT_EQ(countMessages(*self), 0U) << "a copy";
}

TEST(Planner, AMessageOfNoBytesHasOneSlice) {
  Ranks ranks(2);
  EXPECT_EQ(ranks.plan(0, shapeOf(Collective::SendRecv, 0, DataType::I8, 1))->geometry.slices, 1);
  EXPECT_EQ(ranks.plan(0, shapeOf(Collective::SendRecv, 1, DataType::I8, 1))->geometry.slices, 1);
  EXPECT_EQ(ranks.plan(0, shapeOf(Collective::AllGather, 0))->geometry.slices, 0) << "no other call has a slice of nothing";
}

TEST(Planner, SlicesAreAsLargeAsASlotAtMost) {
  Settings settings = only("ring");
  settings.sliceBytes = 1024;
  settings.messageBytes = 4096;
  Ranks ranks(2, settings);
  EXPECT_EQ(ranks.plan(0, shapeOf(Collective::Broadcast, 256))->geometry.slices, 1);
  EXPECT_EQ(ranks.plan(0, shapeOf(Collective::Broadcast, 257))->geometry.slices, 2);
  EXPECT_EQ(ranks.plan(0, shapeOf(Collective::AllReduce, 512))->geometry.slices, 1) << "a chunk for each of two ranks";
  EXPECT_EQ(ranks.plan(0, shapeOf(Collective::AllGather, 2560))->geometry.slices, 10);
  EXPECT_EQ(ranks.plan(0, shapeOf(Collective::SendRecv, 4097, DataType::I8, 1))->geometry.slices, 2);
  const auto plan = ranks.plan(0, shapeOf(Collective::AllReduce, 100000, DataType::F64));
  for (int32_t chunk = 0; chunk < 2; ++chunk)
    for (int32_t slice = 0; slice < plan->geometry.slices; ++slice)
      EXPECT_LE(plan->geometry.range(chunk, 0, slice).elems * 8, plan->channels[0][0].sendEnds[0]->slotBytes());
}

TEST(Planner, WindowCellsHoldASlice) {
  for (const int32_t n : {2, 17, 300}) {
    Ranks ranks(n, only("oneshot"));
    const auto plan = ranks.plan(0, shapeOf(Collective::AllReduce, 100000, DataType::F64));
    const uint64_t sliceBytes = plan->geometry.range(0, 0, 0).elems * 8;
    const BoundStep& store = plan->channels[0][0].steps[0];
    EXPECT_LE(sliceBytes, store.window->cellBytes) << n;
    EXPECT_EQ(plan->geometry.slices, static_cast<int32_t>((800000 + sliceBytes - 1) / sliceBytes));
  }
}

TEST(Planner, ChannelsShareTheWork) {
  Settings settings = only("ring");
  settings.channels = 3;
  Ranks ranks(2, settings);
  const auto plan = ranks.plan(0, shapeOf(Collective::AllReduce, 100000));
  ASSERT_EQ(plan->channels.size(), 3U);
  std::set<const void*> ends;
  for (const auto& lanes : plan->channels) ends.insert(lanes[0].sendEnds[0]);
  EXPECT_EQ(ends.size(), 3U) << "pipes of their own";
  EXPECT_EQ(ranks.plan(0, shapeOf(Collective::AllToAll, 100))->channels.size(), 1U) << "messages have their lanes";
}

TEST(Planner, EverySendHasItsReceive) {
  for (const Collective collective : {Collective::AllReduce, Collective::Broadcast, Collective::Reduce, Collective::AllGather,
                                      Collective::ReduceScatter, Collective::AllToAll, Collective::Gather, Collective::Scatter}) {
    SCOPED_TRACE(name(collective));
    Ranks ranks(5, only(collective == Collective::AllToAll ? "p2p" : "ring"));
    size_t sent = 0;
    size_t received = 0;
    for (int32_t r = 0; r < 5; ++r) {
      const auto plan = ranks.plan(r, shapeOf(collective, 777, DataType::F16, 2));
      sent += countMessages(*plan);
      for (const auto& lanes : plan->channels)
        for (const BoundLane& lane : lanes)
          for (const BoundStep& step : lane.steps) received += static_cast<size_t>(step.numFrom);
    }
    EXPECT_EQ(sent, received);
    EXPECT_GT(sent, 0U);
  }
}

TEST(Planner, PlansOfOneRankShareItsEnds) {
  Ranks ranks(2, only("ring"));
  const auto a = ranks.plan(0, shapeOf(Collective::AllReduce, 100));
  const auto b = ranks.plan(0, shapeOf(Collective::AllGather, 5));
  EXPECT_EQ(a->channels[0][0].sendEnds[0], b->channels[0][0].sendEnds[0]) << "one cursor a pipe, or its messages would be lost";
}

TEST(Planner, CarriesTheReductionWithoutItsFactor) {
  Ranks ranks(2);
  Shape shape = shapeOf(Collective::AllReduce, 10, DataType::BF16);
  shape.op = ReduceOp::Max;
  shape.scaling.hasFactor = true;
  shape.scaling.divisor = 3;
  const auto plan = ranks.plan(1, shape);
  EXPECT_EQ(plan->reduction.type, DataType::BF16);
  EXPECT_EQ(plan->reduction.op, ReduceOp::Max);
  EXPECT_EQ(plan->reduction.scaling, shape.scaling);
  EXPECT_EQ(plan->elementBytes, 2U);
  EXPECT_EQ(plan->rank, Rank(1));
  EXPECT_EQ(plan->ranks, 2);
}

TEST(Planner, WhatTheUserExcludedIsAnError) {
  Ranks ranks(2, only("oneshot"));
  const auto plan = ranks.planners[0]->makePlan(shapeOf(Collective::Broadcast, 10));
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code(), Code::InvalidUsage);
  EXPECT_FALSE(ranks.planners[0]->summarize(shapeOf(Collective::Broadcast, 10)));
}

// Those that round once need memory that all ranks see.
TEST(Planner, BetweenHostsTheBestOrderThatRunsThereIsTaken) {
  Settings settings;
  settings.deterministic = true;
  Ranks near(3, settings);
  settings.spansHosts = true;
  Ranks far(3, settings);
  for (const Collective collective : {Collective::AllReduce, Collective::Reduce}) {
    for (const uint64_t count : {1, 100, 10'000'000}) {
      const auto order = [&](Ranks& ranks) {
        const auto summary = ranks.planners[0]->summarize(shapeOf(collective, count));
        EXPECT_TRUE(summary) << summary.error().text();
        for (const exec::record::Algorithm& a : exec::record::algorithms())
          if (summary && a.traits.collective == collective && a.traits.name == summary->algorithm) return a.traits.order;
        return algo::Order::Layout;
      };
      EXPECT_EQ(order(near), algo::Order::RankAtOnce) << name(collective) << count;
      EXPECT_EQ(order(far), algo::Order::RankHops) << name(collective) << count;
    }
  }
  const auto scatter = far.planners[0]->makePlan(shapeOf(Collective::ReduceScatter, 100));
  ASSERT_FALSE(scatter);
  EXPECT_NE(scatter.error().text().find("ReduceScatter in rank order"), std::string::npos) << scatter.error().text();
  EXPECT_TRUE(far.planners[0]->makePlan(shapeOf(Collective::AllGather, 100))) << "nothing is combined";
}

/// All pairs are for few ranks of several hosts.
TEST(Planner, AllPairsAreTakenWhereTheySuit) {
  const auto chosen = [](int32_t ranks, bool isFar, const char* algorithm) {
    Settings settings = algorithm == nullptr ? Settings() : only(algorithm);
    settings.spansHosts = settings.spansProcesses = settings.machine.spansHosts = isFar;
    settings.machine.cores = 64;
    std::vector<Rejected> rejected;
    const auto summary = Ranks(ranks, settings).planners[0]->summarize(shapeOf(Collective::AllReduce, 1), &rejected);
    std::string reason;
    for (const Rejected& one : rejected)
      if (one.algorithm == "allpairs") reason = one.reason;
    return std::pair(summary ? std::string(summary->algorithm) : summary.error().text(), reason);
  };
  for (const exec::record::Algorithm& a : exec::record::algorithms())
    EXPECT_LE(a.traits.mostAtOnce - (a.traits.fansOut ? 1 : 0), exec::host::kMostLinks) << "one more where it sends to the others alone";
  EXPECT_EQ(chosen(4, true, nullptr).first, "allpairs");
  EXPECT_EQ(chosen(4, false, nullptr).first, "oneshot");
  EXPECT_EQ(chosen(4, false, nullptr).second, "is for ranks of several hosts: taken on one if nothing else is allowed");
  EXPECT_EQ(chosen(4, false, "allpairs").first, "allpairs");
  EXPECT_EQ(chosen(16, true, nullptr).first, "allpairs");
  EXPECT_NE(chosen(17, true, nullptr).first, "allpairs");
  EXPECT_EQ(chosen(17, true, nullptr).second, "is for at most 16 nodes, and as many ranks of each");
  EXPECT_EQ(chosen(17, true, "allpairs").first, "algorithm allpairs is for fewer ranks than 17 on 1 nodes: allow another one");
}

TEST(Planner, MoreSlicesThanCanBeCountedAreAnError) {
  Settings settings = only("ring");
  settings.sliceBytes = 64;
  Ranks ranks(2, settings);
  const auto plan = ranks.planners[0]->makePlan(shapeOf(Collective::Broadcast, uint64_t{1} << 40));
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code(), Code::InvalidUsage);
}

TEST(Planner, SummarizesWhatItWouldPlan) {
  for (const char* algorithm : {"ring", "tree", "oneshot"}) {
    SCOPED_TRACE(algorithm);
    Settings settings = only(algorithm);
    settings.sliceBytes = 512;
    Ranks ranks(4, settings);
    const Shape shape = shapeOf(Collective::AllReduce, 5000);
    const auto summary = ranks.planners[1]->summarize(shape);
    ASSERT_TRUE(summary);
    const auto plan = ranks.plan(1, shape);
    EXPECT_EQ(summary->algorithm, plan->algorithm);
    EXPECT_EQ(summary->channels, static_cast<int32_t>(plan->channels.size()));
    EXPECT_EQ(summary->lanes, static_cast<int32_t>(plan->channels[0].size()));
    EXPECT_EQ(summary->slices, plan->geometry.slices);
    EXPECT_EQ(summary->traffic.steps, countSteps(*plan) * static_cast<size_t>(plan->geometry.slices));
    EXPECT_GE(summary->sliceBytes, plan->geometry.range(0, 0, 0).elems * 4);
  }
}

TEST(Planner, SummarizingOpensNothing) {
  Ranks ranks(2, only("ring"));
  ASSERT_TRUE(ranks.planners[0]->summarize(shapeOf(Collective::AllReduce, 100000)));
  // Had it opened the pipe, its size would be fixed by now.
  const auto pipe = ranks.hub->pipe({ChannelId(0), 0, Rank(0), Rank(1)}, 3, 64);
  ASSERT_TRUE(pipe);
  EXPECT_EQ(pipe->slots, 3U);
}

/// Whether the results of a call of so many bytes are stored past the cache.
bool goesPast(Settings settings, Collective collective, uint64_t bytes, int32_t ranks = 2) {
  settings.sliceBytes = 1 << 20;
  const bool isWhole = collective == Collective::AllReduce || collective == Collective::Broadcast || collective == Collective::Reduce;
  const uint64_t parts = isWhole ? 1 : static_cast<uint64_t>(ranks);
  const auto plan = Ranks(ranks, settings).plan(0, shapeOf(collective, bytes / 4 / parts));
  return plan != nullptr && plan->pastCache;
}

TEST(Planner, ResultsGoPastTheCacheWhereBothBuffersDoNotFitIntoHalfOfARanksShare) {
  Settings settings;
  settings.cacheShare = 12 << 20;
  const auto beyond = [&](Collective collective, uint64_t bytes, int32_t ranks = 2) {
    EXPECT_TRUE(goesPast(settings, collective, bytes + 64, ranks)) << static_cast<int>(collective);
    EXPECT_FALSE(goesPast(settings, collective, bytes, ranks)) << static_cast<int>(collective);
  };
  beyond(Collective::AllReduce, 3 << 20);
  beyond(Collective::AllToAll, 3 << 20);
  beyond(Collective::AllGather, 4 << 20);
  beyond(Collective::ReduceScatter, 4 << 20);
  beyond(Collective::Reduce, 4 << 20);
  beyond(Collective::Broadcast, 6 << 20);
  beyond(Collective::Gather, 6 << 20);
  beyond(Collective::Gather, 12 << 20, 4);
  settings.spansProcesses = true;
  settings.slots = 4096;  // a user's own wish
  beyond(Collective::AllReduce, (5 << 20) / 2);
  settings.cacheShare = uint64_t{1} << 40;
  beyond(Collective::Broadcast, (32 << 20) - 64);
}

TEST(Planner, CallsOfHalfARanksShareToTwiceItTryBothWays) {
  Settings settings;
  settings.cacheShare = 12 << 20;
  const auto tries = [&](Collective collective, uint64_t bytes) {
    const auto plan = Ranks(2, settings).plan(0, shapeOf(collective, bytes / 4));
    return plan != nullptr && plan->cacheChoice != nullptr;
  };
  EXPECT_FALSE(tries(Collective::AllReduce, 3 << 20));
  EXPECT_TRUE(tries(Collective::AllReduce, (3 << 20) + 64));
  EXPECT_TRUE(tries(Collective::AllReduce, 12 << 20));
  EXPECT_FALSE(tries(Collective::AllReduce, (12 << 20) + 64)) << "past it, whoever else uses the cache";
  EXPECT_TRUE(tries(Collective::Broadcast, 24 << 20));
  settings.cacheShare = 32 << 20;
  EXPECT_TRUE(tries(Collective::Broadcast, (32 << 20) - 64));
  EXPECT_FALSE(tries(Collective::Broadcast, 32 << 20)) << "no cache keeps it";
  settings.cacheShare = 12 << 20;
  settings.pastCacheBytes = 8 << 20;
  EXPECT_FALSE(tries(Collective::AllReduce, 4 << 20)) << "the user has said it";
  EXPECT_FALSE(tries(Collective::AllReduce, 8 << 20));
}

/// The two sides of a message need not make the same calls.
TEST(Planner, MessagesGoPastTheCacheWhereTheyDoNotFitIntoARanksShare) {
  Settings settings;
  settings.cacheShare = 12 << 20;
  const auto planOf = [&](uint64_t bytes) {
    Shape shape = shapeOf(Collective::SendRecv, bytes / 4);
    shape.root = Rank(1);
    return Ranks(2, settings).plan(0, shape);
  };
  EXPECT_FALSE(planOf(12 << 20)->pastCache);
  EXPECT_TRUE(planOf((12 << 20) + 64)->pastCache);
  EXPECT_EQ(planOf(12 << 20)->cacheChoice, nullptr);
}

TEST(Planner, TheUserSaysFromWhereResultsGoPastTheCache) {
  Settings settings;
  settings.cacheShare = 2 << 20;
  settings.pastCacheBytes = 5 << 20;
  for (const Collective collective : {Collective::AllReduce, Collective::AllGather, Collective::Broadcast}) {
    EXPECT_TRUE(goesPast(settings, collective, 5 << 20));
    EXPECT_FALSE(goesPast(settings, collective, (5 << 20) - 64));
  }
}

TEST(Planner, ProcessesPlaceResultsOfLongParts) {
  const auto places = [](bool spansProcesses, int32_t ranks, uint64_t bytes) {
    Settings settings = only("twoshot");
    settings.spansProcesses = spansProcesses;
    const auto plan = Ranks(ranks, settings).plan(0, shapeOf(Collective::AllReduce, bytes / 4));
    EXPECT_EQ(plan->places, plan->results != nullptr);
    return plan->places && !plan->pastCache;
  };
  constexpr uint64_t kLong = 256 << 10;
  for (const int32_t ranks : {2, 3}) {
    const auto n = static_cast<uint64_t>(ranks);
    EXPECT_TRUE(places(true, ranks, n * kLong));
    EXPECT_FALSE(places(true, ranks, n * (kLong - 4)));
    EXPECT_FALSE(places(false, ranks, n * kLong)) << "threads read them where they are";
  }
}

/// The slots of the pipe that a rank's messages to its neighbour take, and what they hold; of one that nobody opened, 3 of 64 bytes.
std::pair<uint32_t, uint64_t> messagePipe(const Settings& settings, uint64_t bytes = 8 << 20, uint8_t firstPort = 0) {
  Ranks ranks(2, settings);
  EXPECT_NE(ranks.plan(0, shapeOf(Collective::AllToAll, bytes / 8)), nullptr);
  const auto port = static_cast<uint8_t>(firstPort + algo::kMessagePort);
  const auto pipe = ranks.hub->pipe({ChannelId(0), port, Rank(0), Rank(1)}, 3, 64);  // as it was opened
  return pipe ? std::pair(pipe->slots, pipe->slotBytes) : std::pair(0U, uint64_t{0});
}

TEST(Planner, MessagesBetweenProcessesHaveShortSlotsWhereEachRankHasACore) {
  Settings settings = only("p2p");
  settings.spansProcesses = true;
  settings.machine.cores = 2;
  EXPECT_EQ(messagePipe(settings), std::pair(16U, uint64_t{65536}));
  for (const auto& [asked, got] : {std::pair(9U, 32U), std::pair(20U, 32U), std::pair(33U, 33U)}) {
    settings.slots = asked;
    EXPECT_EQ(messagePipe(settings), std::pair(got, uint64_t{65536}))
        << "as long as boards tell calls apart; ranks may ask for different ones";
  }
  settings.slots = 4;
  settings.machine.cores = 1;
  EXPECT_EQ(messagePipe(settings), std::pair(4U, uint64_t{262144}));
  settings.machine.cores = 2;
  settings.copies = 1;
  EXPECT_EQ(messagePipe(settings), std::pair(4U, uint64_t{262144})) << "for what system calls do not copy";
  EXPECT_EQ(messagePipe(settings, 32 << 20, 64), std::pair(16U, uint64_t{65536})) << "past the cache they copy nothing";
  EXPECT_EQ(messagePipe(settings, 32 << 20), std::pair(3U, uint64_t{64})) << "which pipes of shorter calls are not used for";
}

TEST(Planner, MessagesBetweenManyProcessesHaveFewerSlots) {
  const connect::PipeSize asked{4, 262144};
  const auto slots = [&](int32_t ranks) { return shorter(asked, ranks).slots; };
  EXPECT_EQ(slots(2), 16U);
  EXPECT_EQ(slots(5), 16U);
  EXPECT_EQ(slots(9), 8U) << "4 MiB for all eight";
  EXPECT_EQ(slots(17), 4U);
  EXPECT_EQ(slots(1000), 4U) << "no fewer than were asked for";
  EXPECT_EQ(shorter(asked, 1000).slotBytes, 65536U);
}

TEST(Planner, SystemCallsCopyWhatIsLongAndStaysInTheCache) {
  Settings settings;
  settings.spansProcesses = true;
  settings.copies = 1;
  const auto copies = [&](Collective collective, uint64_t bytes) {
    const uint64_t parts = collective == Collective::Broadcast ? 1 : 2;
    return Ranks(2, settings).plan(0, shapeOf(collective, bytes / 4 / parts))->copies != 0;
  };
  for (const auto& [collective, least] : {std::pair(Collective::Broadcast, 512 << 10), std::pair(Collective::AllToAll, 512 << 10),
                                          std::pair(Collective::AllGather, 1 << 20)}) {
    EXPECT_FALSE(copies(collective, static_cast<uint64_t>(least) - 8)) << static_cast<int>(collective);
    EXPECT_TRUE(copies(collective, static_cast<uint64_t>(least))) << static_cast<int>(collective);
    EXPECT_TRUE(copies(collective, (32 << 20) - 8)) << static_cast<int>(collective);
    EXPECT_FALSE(copies(collective, 32 << 20)) << static_cast<int>(collective);
  }
  EXPECT_TRUE(copies(Collective::Scatter, 100 << 20)) << "which the root would have to write for all of them";
  EXPECT_FALSE(copies(Collective::ReduceScatter, 4 << 20)) << "values that somebody computes with";
}

TEST(Planner, NobodyWritesMoreThanTheSlotsOfAnotherRankHold) {
  const auto hub = *Hub::make(2);
  const connect::Layout layout = connect::Layout::natural(2);
  Settings settings = only("ring");
  settings.spansProcesses = true;
  const auto plan = [&](int32_t rank, uint64_t sliceBytes) {
    settings.sliceBytes = sliceBytes;
    connect::Connections connections(*hub, Rank(rank));
    return Planner(layout, connections, Rank(rank), settings).makePlan(shapeOf(Collective::AllGather, 1 << 20));
  };
  EXPECT_TRUE(plan(0, 65536));
  const auto other = plan(1, 131072);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code(), Code::InvalidUsage);
  EXPECT_NE(other.error().text().find("TUTTI_SLICE_BYTES"), std::string::npos) << other.error().text();
}

TEST(Planner, ProcessesThatShareCoresExchangeThroughWindows) {
  Settings settings;
  settings.spansProcesses = true;
  for (const uint64_t bytes : {128 << 10, 1 << 20, 16 << 20})
    for (const int32_t ranks : {4, 8}) {
      settings.machine.cores = 2;
      EXPECT_EQ(Ranks(ranks, settings).plan(0, shapeOf(Collective::AllToAll, bytes / 4 / static_cast<uint64_t>(ranks)))->algorithm,
                "direct")
          << bytes << ", " << ranks << " ranks";
    }
}

/// Two hosts of one rank with three devices each: what fills a slice on each device runs on all of them.
TEST(Planner, LongCallsOfSeveralHostsUseAllNets) {
  connect::Channels channels;
  channels.ranks = channels.nodes = 2;
  channels.rings.assign(3, {0, 1});
  for (int32_t device = 0; device < 3; ++device) channels.nets.push_back({{device, device}, {device, device}});
  connect::NodeGraphs nodes[2];
  nodes[0].ranks = {0};
  nodes[1].ranks = {1};
  const connect::Layout layout = connect::Layout::ofNets(channels, nodes);
  ASSERT_EQ(layout.tracks(), 3);
  const auto hub = Hub::make(2);
  connect::Connections connections(**hub, Rank(0));
  const auto channelsOf = [&](uint64_t bytes, int32_t fewest, int32_t most) {
    Settings settings = only("ring");
    settings.channels = fewest;
    settings.maxChannels = most;
    const auto summary = Planner(layout, connections, Rank(0), settings).summarize(shapeOf(Collective::AllReduce, bytes / 4));
    EXPECT_TRUE(summary) << summary.error().text();
    return summary ? summary->channels : -1;
  };
  const uint64_t slices = 3 * Settings().sliceBytes;
  EXPECT_EQ(channelsOf(slices - 4, 1, 64), 1);
  EXPECT_EQ(channelsOf(slices, 1, 64), 3);
  EXPECT_EQ(channelsOf(slices, 4, 64), 4) << "more, for who wants them";
  EXPECT_EQ(channelsOf(slices, 1, 2), 2) << "never more than are allowed";
  EXPECT_EQ(channelsOf(slices, 1, 1), 1);
}

}  // namespace
}  // namespace tutti::plan::planner_test
