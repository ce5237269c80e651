#include "plan/device_planner.h"

#include <cstring>

#include "device_world.h"

namespace tutti::plan::device_planner_test {
namespace {

constexpr uint64_t kCounts[] = {0, 1, 17, 1000, 4097, 65536, 1'000'003, 40'000'000};

TEST(DevicePlanner, EveryAlgorithmOnEveryProtocolMakesPlansThatFit) {
  int made = 0;
  for (int32_t n = 1; n <= 9; ++n) {
    for (const exec::record::Algorithm& algorithm : exec::record::algorithms()) {
      const algo::Traits& traits = algorithm.traits;
      if (traits.collective == Collective::SendRecv) continue;
      for (const char* const protocol : {"LL", "LL128", "Simple"}) {
        SCOPED_TRACE(format("{} {} {} {}", n, name(traits.collective), traits.name, protocol));
        DeviceSettings settings = settingsFor(n);
        settings.restrictions.tutti = filterOf("TUTTI_ALGO", format("{}:{}", name(traits.collective), traits.name));
        settings.protocols = filterOf("NCCL_PROTO", protocol);
        World world(n, settings);
        if (traits.farOnly) {
          EXPECT_NE(world.failure(shapeOf(traits.collective, 100)).text().find("several hosts"), std::string::npos);
          continue;
        }
        if (traits.fansOut) {
          EXPECT_NE(world.failure(shapeOf(traits.collective, 100)).text().find("is for host devices"), std::string::npos);
          continue;
        }
        const bool isWindow = traits.needs == algo::Needs::PeerMemory;
        if (isWindow && !settings.hasWindows) {
          EXPECT_EQ(world.failure(shapeOf(traits.collective, 100)).code(), Code::InvalidUsage);
          continue;
        }
        for (size_t i = 0; i < std::size(kCounts); ++i) {
          const auto type = static_cast<DataType>((i * 5 + static_cast<size_t>(n)) % kNumDataTypes);
          const Shape shape = shapeOf(traits.collective, kCounts[i], type, static_cast<int32_t>(i) % n);
          SCOPED_TRACE(format("{} {}", kCounts[i], name(type)));
          ASSERT_NO_FATAL_FAILURE(checkCall(world, shape, settings));
          ++made;
        }
      }
    }
  }
  EXPECT_GT(made, 3000);
}

TEST(DevicePlanner, AllRanksChooseAlikeWhateverTheirLayout) {
  const connect::Layout layouts[] = {connect::Layout({3, 0, 2, 1}), connect::Layout::natural(6, 2),
                                     connect::Layout({7, 1, 3, 5, 0, 2, 4, 6}, 4), connect::Layout::byHost({0, 1, 0, 1, 0}),
                                     connect::Layout::natural(33),
                                     connect::Layout::ofRings({{0, 1, 2, 3, 4}, {0, 2, 4, 1, 3}, {4, 3, 2, 1, 0}})};
  for (const connect::Layout& layout : layouts) {
    DeviceSettings settings = settingsFor(layout.ranks());
    settings.maxChannels = 66;
    settings.windowChannels = {16, 64};
    World world(layout, settings);
    for (const Collective collective : kCalls) {
      for (uint64_t count = 1; count < 100'000'000; count = count * 7 + 3) {
        SCOPED_TRACE(format("{} ranks, {} {}", layout.ranks(), name(collective), count));
        ASSERT_NO_FATAL_FAILURE(checkCall(world, shapeOf(collective, count, DataType::BF16, layout.ranks() - 1), settings));
      }
    }
  }
}

TEST(DevicePlanner, AMessageIsCutAlikeOnBothSides) {
  const DeviceSettings settings = settingsFor(5);
  World world(5, settings);
  for (const uint64_t count : {0ULL, 1ULL, 100ULL, 4096ULL, 1'000'000ULL, 300'000'000ULL}) {
    SCOPED_TRACE(count);
    Shape send = shapeOf(Collective::SendRecv, count, DataType::F16, 3);
    Shape receive = shapeOf(Collective::SendRecv, count, DataType::F16, 1);
    receive.receives = true;
    const PlanPtr sends = world.plan(1, send);
    const PlanPtr receives = world.plan(3, receive);
    ASSERT_NO_FATAL_FAILURE(checkPlan(*sends, send, world.layout, settings));
    ASSERT_NO_FATAL_FAILURE(checkPlan(*receives, receive, world.layout, settings));
    ASSERT_NO_FATAL_FAILURE(expectSameCut(*sends, *receives));
    EXPECT_EQ(sends->work.firstLane, 0);
    EXPECT_EQ(receives->work.firstLane, 1);
    EXPECT_GE(sends->work.geometry.slices, 1) << "a message of no bytes meets its partner";
    ASSERT_EQ(sends->pipes.size(), 1U);
    ASSERT_EQ(receives->pipes.size(), 1U);
    const Protocol protocol = kernelInfo(sends->kernel).protocol;
    EXPECT_EQ(sends->pipes[0], (PipeNeed{protocol, algo::kUserPort, true, Rank(3)}));
    EXPECT_EQ(receives->pipes[0], (PipeNeed{protocol, algo::kUserPort, false, Rank(1)}));
    EXPECT_LE(sends->blocks(), settings.messageChannels);
    // The same bytes as another type are cut at the same bytes.
    receive.type = DataType::U8;
    receive.count = 2 * count;
    const PlanPtr bytes = world.plan(3, receive);
    EXPECT_EQ(bytes->kernel, sends->kernel);
    EXPECT_EQ(bytes->work.geometry.channels, sends->work.geometry.channels);
    EXPECT_EQ(bytes->work.geometry.slices, sends->work.geometry.slices);
    EXPECT_EQ(bytes->work.geometry.partElems, 2 * sends->work.geometry.partElems);
    if (count != 0) {
      EXPECT_EQ(bytes->work.geometry.sliceElems, 2 * sends->work.geometry.sliceElems);
    }
  }
  EXPECT_GT(world.plan(1, shapeOf(Collective::SendRecv, 100'000'000, DataType::F32, 2))->blocks(), 1);
}

/// Of two ranks, who are neighbours on the ring, plain data that goes straight to its receiver needs no pipes of its own.
TEST(DevicePlanner, TwoRanksHaveOneSetOfPlainPipes) {
  for (const int32_t n : {2, 3}) {
    DeviceSettings settings = settingsFor(n);
    settings.hasWindows = false;
    World world(n, settings);
    const uint8_t wanted = n == 2 ? algo::kRingPort : algo::kMessagePort;
    for (const Collective collective : {Collective::AllToAll, Collective::Gather, Collective::Scatter}) {
      SCOPED_TRACE(format("{} of {} ranks", name(collective), n));
      const Shape large = shapeOf(collective, 1 << 24, DataType::F32, 1);
      ASSERT_NO_FATAL_FAILURE(checkCall(world, large, settings));
      for (int32_t r = 0; r < n; ++r) {
        const PlanPtr plan = world.plan(r, large);
        ASSERT_EQ(kernelInfo(plan->kernel).protocol, Protocol::Simple);
        for (const PipeNeed& need : plan->pipes) EXPECT_EQ(need.port, wanted);
      }
      const PlanPtr small = world.plan(0, shapeOf(collective, 16, DataType::F32, 1));
      ASSERT_NE(kernelInfo(small->kernel).protocol, Protocol::Simple);
      for (const PipeNeed& need : small->pipes) EXPECT_EQ(need.port, algo::kMessagePort) << "cells and lines: rings have more channels";
    }
    const PlanPtr message = world.plan(0, shapeOf(Collective::SendRecv, 1 << 24, DataType::F32, 1));
    for (const PipeNeed& need : message->pipes) EXPECT_EQ(need.port, algo::kUserPort);
  }
}

/// Gather and scatter of few ranks have pipes of plain data apart from all-to-all's, where the settings have some for them.
TEST(DevicePlanner, AStarMayHavePipesOfItsOwn) {
  for (const int32_t stars : {0, 12}) {
    DeviceSettings settings = settingsFor(4);
    settings.hasWindows = false;
    settings.plainMessageChannels = 5;
    settings.plainStarChannels = stars;
    World world(4, settings);
    for (const Collective collective : {Collective::AllToAll, Collective::Gather, Collective::Scatter}) {
      SCOPED_TRACE(format("{}, {} channels for stars", name(collective), stars));
      const bool isApart = collective != Collective::AllToAll && stars > 0;
      const Shape large = shapeOf(collective, 1 << 24, DataType::F32, 1);
      ASSERT_NO_FATAL_FAILURE(checkCall(world, large, settings));
      for (int32_t r = 0; r < 4; ++r) {
        const PlanPtr plan = world.plan(r, large);
        ASSERT_EQ(kernelInfo(plan->kernel).protocol, Protocol::Simple);
        EXPECT_LE(plan->work.geometry.channels, isApart ? stars : 5);
        if (isApart) {
          EXPECT_GT(plan->work.geometry.channels, 5);
        }
        for (const PipeNeed& need : plan->pipes) EXPECT_EQ(need.port, isApart ? algo::kStarPort : algo::kMessagePort);
      }
      const PlanPtr small = world.plan(0, shapeOf(collective, 16, DataType::F32, 1));
      ASSERT_NE(kernelInfo(small->kernel).protocol, Protocol::Simple);
      for (const PipeNeed& need : small->pipes) EXPECT_EQ(need.port, algo::kMessagePort) << "cells and lines";
    }
  }
}

/// Adds the ends of a rank's pipes, on one protocol and channel.
void addEnds(std::set<std::tuple<uint8_t, bool, int32_t>>& ends, const exec::record::Program& program) {
  for (const auto& lane : program.lanes)
    for (const algo::Step& step : lane) {
      if (step.kind != algo::Kind::Pipe) continue;
      for (int32_t i = 0; i < step.from.count; ++i) ends.insert({step.port, false, step.from.at(i).value});
      for (int32_t i = 0; i < step.to.count; ++i) ends.insert({step.port, true, step.to.at(i).value});
    }
}

/// Of all the algorithms that fit, for all roots and peers: the most of a rank.
size_t mostEnds(const connect::Layout& layout, std::set<std::string>& leftOut) {
  DeviceFits fits(layout);
  std::vector<std::set<std::tuple<uint8_t, bool, int32_t>>> ends(static_cast<size_t>(layout.ranks()));
  for (const exec::record::Algorithm& algorithm : exec::record::algorithms()) {
    if (algorithm.traits.needs == algo::Needs::PeerMemory || !algorithm.traits.isForDevices()) continue;
    if (!fits.of(algorithm, KernelId::Simple, Rank(0)).status.ok()) {
      leftOut.insert(format("{} {}", name(algorithm.traits.collective), algorithm.traits.name));
      continue;
    }
    for (int32_t r = 0; r < layout.ranks(); ++r)
      for (int32_t root = 0; root < layout.ranks(); ++root)
        addEnds(ends[static_cast<size_t>(r)], algorithm.record(layout.view(Rank(r), Rank(root))));
  }
  size_t most = 0;
  for (const auto& of : ends) most = std::max(most, of.size());
  return most;
}

TEST(DevicePlanner, TheEndsOfAllPipesFitWhateverIsCalled) {
  for (int32_t n = 1; n <= kMostDeviceRanks; ++n) {
    for (const int32_t nodeRanks : {n, 3, 4}) {
      SCOPED_TRACE(format("{} ranks, nodes of {}", n, nodeRanks));
      std::set<std::string> leftOut;
      EXPECT_LE(mostEnds(connect::Layout::natural(n, nodeRanks), leftOut), static_cast<size_t>(exec::cuda::kMostEnds));
      for (const std::string& one : leftOut) {
        EXPECT_EQ(one.find("ring"), std::string::npos) << one;
        EXPECT_EQ(one.find("p2p"), std::string::npos) << one;
        EXPECT_EQ(one.find("star"), std::string::npos) << one;
      }
      EXPECT_TRUE(n > 10 || leftOut.empty()) << *leftOut.begin();
    }
  }
  std::set<std::string> leftOut;
  EXPECT_GT(mostEnds(connect::Layout::natural(kMostDeviceRanks + 1), leftOut), static_cast<size_t>(exec::cuda::kMostEnds));
}

TEST(DevicePlanner, WhatHasNoRoomIsSaidBeforeItBegins) {
  DeviceSettings settings = settingsFor(16);
  settings.restrictions.tutti = filterOf("TUTTI_ALGO", "AllReduce:tree");
  const Status tree = World(16, settings).failure(shapeOf(Collective::AllReduce, 100));
  for (const char* const word : {"tree of 16 ranks", "no room", "64 ends"})
    EXPECT_NE(tree.text().find(word), std::string::npos) << word << " in: " << tree.text();
  EXPECT_TRUE(fitRanks(1).ok());
  EXPECT_TRUE(fitRanks(kMostDeviceRanks).ok());
  const Status status = fitRanks(17);
  EXPECT_EQ(status.code(), Code::InvalidUsage);
  for (const char* const word : {"17 ranks", "at most 16", "66 ends", "hold 64"})
    EXPECT_NE(status.text().find(word), std::string::npos) << word << " in: " << status.text();
}

TEST(DevicePlanner, AMessageToItselfIsACopyInLaneZero) {
  World world(3, settingsFor(3));
  const Shape self = shapeOf(Collective::SendRecv, 1000, DataType::F32, 1);
  const PlanPtr copy = world.plan(1, self);
  EXPECT_EQ(copy->work.firstLane, 0);
  EXPECT_TRUE(copy->pipes.empty());
  exec::cuda::ProgramHead head{};
  std::memcpy(&head, copy->program.words.data(), sizeof head);
  EXPECT_EQ(head.steps, 1);
  Shape receives = self;
  receives.receives = true;
  const PlanPtr nothing = world.plan(1, receives);
  EXPECT_EQ(nothing->work.firstLane, 1);
  EXPECT_TRUE(nothing->pipes.empty());
  std::memcpy(&head, nothing->program.words.data() + nothing->program.shape.laneWords, sizeof head);
  EXPECT_EQ(head.steps, 0);
}

TEST(DevicePlanner, CarriesTheScalingOfTheShape) {
  World world(2, settingsFor(2));
  Shape shape = shapeOf(Collective::AllReduce, 100, DataType::I32);
  shape.op = ReduceOp::Sum;
  shape.scaling.divisor = 2;
  EXPECT_EQ(world.plan(0, shape)->work.scaling.divisor, 2);
  shape.scaling = {0, true, 1};
  EXPECT_TRUE(world.plan(0, shape)->work.scaling.hasFactor);
}

TEST(DevicePlanner, TheSummaryIsThatOfThePlan) {
  World world(4, settingsFor(4));
  for (const Collective collective : kCalls) {
    for (const uint64_t count : {100ULL, 1'000'000ULL}) {
      const Shape shape = shapeOf(collective, count);
      const PlanPtr plan = world.plan(2, shape);
      const auto summary = world.planners[2]->summarize(shape);
      ASSERT_TRUE(summary);
      EXPECT_EQ(summary->algorithm, plan->algorithm);
      EXPECT_EQ(summary->kernel, kernelInfo(plan->kernel).name);
      EXPECT_EQ(summary->channels, plan->work.geometry.channels);
      EXPECT_EQ(summary->lanes, plan->work.lanes);
      EXPECT_EQ(summary->slices, plan->work.geometry.slices);
      EXPECT_EQ(summary->estimatedUs, plan->estimatedUs);
      EXPECT_GT(summary->traffic.steps, 0U);
    }
  }
  const auto message = world.planners[0]->summarize(shapeOf(Collective::SendRecv, 1000, DataType::F32, 1));
  ASSERT_TRUE(message);
  EXPECT_EQ(message->traffic.bytesSent, 4000U) << "one of the two lanes";
}

}  // namespace
}  // namespace tutti::plan::device_planner_test
