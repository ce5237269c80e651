// Planners of all ranks of a communicator, and what every plan of theirs must hold to. For tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "plan/device_planner.h"

namespace tutti::plan {

using exec::cuda::carriedBytes;
using exec::cuda::KernelId;
using exec::cuda::kernelInfo;
using exec::cuda::Protocol;
using PlanPtr = std::shared_ptr<DevicePlan>;

inline DeviceSettings settingsFor(int32_t ranks) {
  DeviceSettings settings;
  settings.mostBlocks.fill(132);
  settings.hasWindows = ranks <= exec::cuda::kMaxLocalRanks;
  settings.hasLines = true;
  return settings;
}

inline tune::Filter filterOf(std::string_view variable, std::string_view text) {
  const auto known = variable == "NCCL_PROTO"  ? tune::ncclProtocolNames()
                     : variable == "NCCL_ALGO" ? tune::ncclAlgorithmNames()
                                               : tune::tuttiAlgorithmNames();
  auto filter = tune::Filter::parse(variable, text, known);
  EXPECT_TRUE(filter) << text;
  return filter ? *filter : tune::Filter();
}

/// The planner of each rank of a communicator.
struct World {
  World(connect::Layout all, const DeviceSettings& settings) : layout(std::move(all)) {
    for (int32_t r = 0; r < layout.ranks(); ++r) planners.push_back(std::make_unique<DevicePlanner>(layout, Rank(r), settings));
  }
  World(int32_t ranks, const DeviceSettings& settings) : World(connect::Layout::natural(ranks), settings) {}

  PlanPtr plan(int32_t rank, const Shape& shape) {
    auto plan = planners[static_cast<size_t>(rank)]->makePlan(shape);
    EXPECT_TRUE(plan) << (plan ? "" : plan.error().text());
    return plan ? *plan : nullptr;
  }
  Status failure(const Shape& shape) {
    const auto plan = planners[0]->makePlan(shape);
    return plan ? Status() : plan.error();
  }

  connect::Layout layout;
  std::vector<std::unique_ptr<DevicePlanner>> planners;
};

inline Shape shapeOf(Collective collective, uint64_t count, DataType type = DataType::F32, int32_t root = 0) {
  Shape shape;
  shape.collective = collective;
  shape.count = count;
  shape.type = type;
  shape.root = Rank(root);
  return shape;
}

inline const exec::record::Algorithm& algorithmOf(const DevicePlan& plan) { return exec::record::algorithms()[plan.work.algorithm]; }

/// The peers that the packed words of the plan's lanes name on a track.
inline std::set<std::tuple<uint8_t, bool, int32_t>> endsInWords(const DevicePlan& plan, int track) {
  std::set<std::tuple<uint8_t, bool, int32_t>> ends;
  for (int lane = plan.work.firstLane; lane < plan.work.firstLane + plan.work.lanes; ++lane) {
    const uint64_t* const words =
        plan.program.words.data() + static_cast<size_t>(track * plan.program.shape.lanes + lane) * plan.program.shape.laneWords;
    exec::cuda::ProgramHead head{};
    std::memcpy(&head, words, sizeof head);
    for (int32_t i = 0; i < head.steps; ++i) {
      exec::cuda::ProgramStep step{};
      std::memcpy(&step, words + 1 + static_cast<size_t>(i) * sizeof step / sizeof(uint64_t), sizeof step);
      if (step.kind != algo::Kind::Pipe) continue;
      for (int p = 0; p < step.froms; ++p) ends.insert({step.port, false, step.from[p]});
      for (int p = 0; p < step.tos; ++p) ends.insert({step.port, true, step.to[p]});
    }
  }
  return ends;
}

inline uint64_t elemsOf(const algo::Geometry& g, int32_t chunks) {
  uint64_t sum = 0;
  for (int32_t chunk = 0; chunk < chunks; ++chunk)
    for (int32_t channel = 0; channel < g.channels; ++channel)
      for (int32_t slice = 0; slice < g.slices; ++slice) sum += g.range(chunk, channel, slice).elems;
  return sum;
}

/// What every plan must hold to, whatever was chosen.
inline void checkPlan(const DevicePlan& plan, const Shape& shape, const connect::Layout& layout, const DeviceSettings& settings) {
  const algo::Geometry& g = plan.work.geometry;
  const exec::record::Algorithm& algorithm = algorithmOf(plan);
  const algo::Traits& traits = algorithm.traits;
  const Protocol protocol = kernelInfo(plan.kernel).protocol;
  const auto p = static_cast<size_t>(protocol);
  const bool isMessage = shape.collective == Collective::SendRecv;
  ASSERT_EQ(traits.collective, shape.collective);
  ASSERT_EQ(traits.name, plan.algorithm);
  ASSERT_TRUE(g.isComplete());
  const int32_t chunks = algorithm.chunks(layout.ranks());
  ASSERT_EQ(g.totalElems, traits.division == algo::Division::Shares ? shape.count : shape.count * static_cast<uint64_t>(chunks));
  if (static_cast<int64_t>(g.slices) * g.channels * chunks < 20000) {
    ASSERT_EQ(elemsOf(g, chunks), g.totalElems);
  }
  ASSERT_EQ(plan.work.lanes, isMessage ? 1 : algorithm.lanes(layout.ranks()));
  ASSERT_EQ(plan.blocks(), g.channels * plan.work.lanes);
  ASSERT_GE(g.channels, 1);
  ASSERT_LE(plan.blocks(), settings.mostBlocks[static_cast<size_t>(plan.kernel)]);
  if (plan.blocks() > settings.maxChannels) {
    ASSERT_EQ(g.channels, 1) << "nothing less carries out the call";
    ASSERT_GT(plan.work.lanes, settings.maxChannels);
  }
  ASSERT_EQ(plan.work.type, shape.type);
  ASSERT_EQ(plan.work.op, shape.op);
  ASSERT_EQ(plan.work.program.words, nullptr);
  const exec::cuda::ProgramShape& words = plan.program.shape;
  ASSERT_EQ(plan.work.program.shape, words);
  ASSERT_EQ(words.lanes, algorithm.lanes(layout.ranks()));
  ASSERT_EQ(words.tracks, traits.needs == algo::Needs::PeerMemory || isMessage ? 1 : layout.tracks());
  ASSERT_EQ(plan.program.words.size(), words.laneWords * static_cast<size_t>(words.lanes * words.tracks));
  ASSERT_GT(plan.estimatedUs, 0);
  const uint64_t sliceBytes = g.sliceElems * sizeOf(shape.type);
  ASSERT_EQ(plan.needsWindow, traits.needs == algo::Needs::PeerMemory);
  if (plan.needsWindow) {
    const auto w = static_cast<size_t>(plan.window());
    ASSERT_TRUE(settings.hasWindows);
    ASSERT_TRUE(kernelInfo(plan.kernel).runsWindows);
    ASSERT_LE(g.channels, settings.windowChannels[w]);
    ASSERT_LE(sliceBytes, carriedBytes(protocol, exec::cuda::shareRoom(protocol, settings.shareBytes[w])));
    ASSERT_TRUE(plan.pipes.empty());
  } else {
    ASSERT_TRUE(kernelInfo(plan.kernel).runsPipes);
    const uint64_t piece = carriedBytes(protocol, settings.slotBytes[p]);
    ASSERT_LE((sliceBytes + piece - 1) / piece * static_cast<uint64_t>(traits.minSlots), static_cast<uint64_t>(settings.slots[p]));
  }
  std::set<std::tuple<uint8_t, bool, int32_t>> ends;
  for (const PipeNeed& need : plan.pipes) {
    ASSERT_EQ(need.protocol, protocol);
    ASSERT_LE(g.channels, settings.pipeChannels(protocol, need.port));
    bool isOnAny = false;
    for (int32_t channel = 0; channel < settings.pipeChannels(protocol, need.port); ++channel) isOnAny |= need.tracks.has(channel);
    ASSERT_TRUE(isOnAny) << "a pipe without a channel";
    ends.insert({need.port, need.sends, need.peer.value});
  }
  ASSERT_EQ(ends.size(), plan.pipes.size()) << "distinct";
  std::set<std::tuple<uint8_t, bool, int32_t>> named;
  for (int track = 0; track < words.tracks; ++track) {
    const auto onTrack = endsInWords(plan, track);
    for (const auto& end : onTrack)
      if (track < settings.pipeChannels(protocol, std::get<0>(end))) named.insert(end);
    for (const PipeNeed& need : plan.pipes) {
      if (track < settings.pipeChannels(protocol, need.port) && onTrack.contains({need.port, need.sends, need.peer.value})) {
        ASSERT_TRUE(need.tracks.has(track)) << "a pipe that track " << track << " needs";
      }
    }
  }
  ASSERT_EQ(ends, named);
}

inline void expectSameCut(const DevicePlan& a, const DevicePlan& b) {
  ASSERT_EQ(a.work.algorithm, b.work.algorithm);
  ASSERT_EQ(a.kernel, b.kernel);
  ASSERT_EQ(std::memcmp(&a.work.geometry, &b.work.geometry, sizeof(algo::Geometry)), 0);
  ASSERT_EQ(a.work.lanes, b.work.lanes);
  ASSERT_EQ(a.needsWindow, b.needsWindow);
  ASSERT_EQ(a.estimatedUs, b.estimatedUs);
}

/// Plans of all ranks for a call; every sender has its receiver.
inline void checkCall(World& world, const Shape& shape, const DeviceSettings& settings) {
  std::vector<PlanPtr> plans;
  using Pipe = std::tuple<int, uint8_t, int32_t, int32_t, exec::cuda::Tracks>;
  std::set<Pipe> sent;
  std::set<Pipe> received;
  for (int32_t r = 0; r < world.layout.ranks(); ++r) {
    plans.push_back(world.plan(r, shape));
    ASSERT_NE(plans.back(), nullptr);
    ASSERT_NO_FATAL_FAILURE(checkPlan(*plans.back(), shape, world.layout, settings));
    ASSERT_NO_FATAL_FAILURE(expectSameCut(*plans.front(), *plans.back()));
    for (const PipeNeed& need : plans.back()->pipes) {
      const int32_t from = need.sends ? r : need.peer.value;
      const int32_t to = need.sends ? need.peer.value : r;
      (need.sends ? sent : received).insert({static_cast<int>(need.protocol), need.port, from, to, need.tracks});
    }
  }
  ASSERT_EQ(sent, received);
}

inline constexpr Collective kCalls[] = {Collective::Broadcast, Collective::Reduce,   Collective::AllGather, Collective::ReduceScatter,
                                        Collective::AllReduce, Collective::AllToAll, Collective::Scatter,   Collective::Gather};

}  // namespace tutti::plan
