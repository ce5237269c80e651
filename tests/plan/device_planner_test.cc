#include "plan/device_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace tutti::plan {
namespace {

using exec::cuda::carriedBytes;
using exec::cuda::KernelId;
using exec::cuda::kernelInfo;
using exec::cuda::Protocol;
using PlanPtr = std::shared_ptr<DevicePlan>;

DeviceSettings settingsFor(int32_t ranks) {
  DeviceSettings settings;
  settings.mostBlocks.fill(132);
  settings.hasWindows = ranks <= exec::cuda::kMaxLocalRanks;
  settings.hasLines = true;
  settings.hasBulk = true;
  return settings;
}

tune::Filter filterOf(std::string_view variable, std::string_view text) {
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

Shape shapeOf(Collective collective, uint64_t count, DataType type = DataType::F32, int32_t root = 0) {
  Shape shape;
  shape.collective = collective;
  shape.count = count;
  shape.type = type;
  shape.root = Rank(root);
  return shape;
}

const exec::record::Algorithm& algorithmOf(const DevicePlan& plan) { return exec::record::algorithms()[plan.work.algorithm]; }

/// The peers that the packed words of the plan's lanes name.
std::set<std::tuple<uint8_t, bool, int32_t>> endsInWords(const DevicePlan& plan) {
  std::set<std::tuple<uint8_t, bool, int32_t>> ends;
  for (int lane = plan.work.firstLane; lane < plan.work.firstLane + plan.work.lanes; ++lane) {
    const uint64_t* const words = plan.program.words.data() + static_cast<size_t>(lane) * plan.program.laneWords;
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

uint64_t elemsOf(const algo::Geometry& g, int32_t chunks) {
  uint64_t sum = 0;
  for (int32_t chunk = 0; chunk < chunks; ++chunk)
    for (int32_t channel = 0; channel < g.channels; ++channel)
      for (int32_t slice = 0; slice < g.slices; ++slice) sum += g.range(chunk, channel, slice).elems;
  return sum;
}

/// What every plan must hold to, whatever was chosen.
void checkPlan(const DevicePlan& plan, const Shape& shape, const connect::Layout& layout, const DeviceSettings& settings) {
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
  ASSERT_LE(plan.blocks(), settings.maxChannels);
  ASSERT_EQ(plan.work.type, shape.type);
  ASSERT_EQ(plan.work.op, shape.op);
  ASSERT_EQ(plan.work.program.words, nullptr);
  ASSERT_EQ(plan.work.program.laneWords, plan.program.laneWords);
  ASSERT_EQ(plan.program.words.size(), plan.program.laneWords * static_cast<size_t>(algorithm.lanes(layout.ranks())));
  ASSERT_GT(plan.estimatedUs, 0);
  const uint64_t sliceBytes = g.sliceElems * sizeOf(shape.type);
  ASSERT_EQ(plan.needsWindow, traits.needs == algo::Needs::PeerMemory);
  if (plan.needsWindow) {
    const auto w = static_cast<size_t>(plan.window());
    ASSERT_TRUE(settings.hasWindows);
    ASSERT_TRUE(kernelInfo(plan.kernel).runsWindows);
    ASSERT_LE(g.channels, settings.windowChannels[w]);
    ASSERT_LE(sliceBytes, carriedBytes(protocol, settings.shareBytes[w]));
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
    ends.insert({need.port, need.sends, need.peer.value});
  }
  ASSERT_EQ(ends.size(), plan.pipes.size()) << "distinct";
  ASSERT_EQ(ends, endsInWords(plan));
}

void expectSameCut(const DevicePlan& a, const DevicePlan& b) {
  ASSERT_EQ(a.work.algorithm, b.work.algorithm);
  ASSERT_EQ(a.kernel, b.kernel);
  ASSERT_EQ(std::memcmp(&a.work.geometry, &b.work.geometry, sizeof(algo::Geometry)), 0);
  ASSERT_EQ(a.work.lanes, b.work.lanes);
  ASSERT_EQ(a.needsWindow, b.needsWindow);
  ASSERT_EQ(a.estimatedUs, b.estimatedUs);
}

/// Plans of all ranks for a call; every sender has its receiver.
void checkCall(World& world, const Shape& shape, const DeviceSettings& settings) {
  std::vector<PlanPtr> plans;
  std::set<std::tuple<int, uint8_t, int32_t, int32_t>> sent;
  std::set<std::tuple<int, uint8_t, int32_t, int32_t>> received;
  for (int32_t r = 0; r < world.layout.ranks(); ++r) {
    plans.push_back(world.plan(r, shape));
    ASSERT_NE(plans.back(), nullptr);
    ASSERT_NO_FATAL_FAILURE(checkPlan(*plans.back(), shape, world.layout, settings));
    ASSERT_NO_FATAL_FAILURE(expectSameCut(*plans.front(), *plans.back()));
    for (const PipeNeed& need : plans.back()->pipes) {
      const int32_t from = need.sends ? r : need.peer.value;
      const int32_t to = need.sends ? need.peer.value : r;
      (need.sends ? sent : received).insert({static_cast<int>(need.protocol), need.port, from, to});
    }
  }
  ASSERT_EQ(sent, received);
}

constexpr Collective kCalls[] = {Collective::Broadcast, Collective::Reduce,   Collective::AllGather, Collective::ReduceScatter,
                                 Collective::AllReduce, Collective::AllToAll, Collective::Scatter,   Collective::Gather};
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
        const bool isWindow = traits.needs == algo::Needs::PeerMemory;
        if (isWindow && (!settings.hasWindows || std::string_view(protocol) == "LL128")) {
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
                                     connect::Layout::natural(33)};
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

TEST(DevicePlanner, SmallCallsTakeWindowsAndLargeOnesTheRing) {
  for (const int32_t n : {2, 4}) {
    DeviceSettings settings = settingsFor(n);
    World world(n, settings);
    const PlanPtr small = world.plan(0, shapeOf(Collective::AllReduce, 2));
    EXPECT_EQ(small->algorithm, "oneshot");
    EXPECT_EQ(small->kernel, KernelId::Window);
    EXPECT_EQ(small->blocks(), 1);
    EXPECT_EQ(small->work.geometry.slices, 1) << "or it does not run on the kernel of small calls";
    const PlanPtr middle = world.plan(0, shapeOf(Collective::AllReduce, 16384));
    EXPECT_EQ(middle->kernel, KernelId::Window);
    EXPECT_GT(middle->blocks(), 8);
    EXPECT_EQ(middle->work.geometry.slices, 1);
    const PlanPtr large = world.plan(0, shapeOf(Collective::AllReduce, 64 << 20));
    EXPECT_EQ(large->algorithm, "ring");
    EXPECT_EQ(large->kernel, KernelId::Simple);
    EXPECT_EQ(large->blocks(), 32);
  }
  DeviceSettings apart = settingsFor(2);
  apart.hasWindows = false;
  World world(2, apart);
  EXPECT_EQ(world.plan(0, shapeOf(Collective::AllReduce, 2))->kernel, KernelId::Cells);
}

TEST(DevicePlanner, KernelsThatAreNotThereAreNotChosen) {
  for (int without = 0; without < exec::cuda::kNumKernels; ++without) {
    DeviceSettings settings = settingsFor(4);
    settings.mostBlocks[static_cast<size_t>(without)] = 0;
    World world(4, settings);
    for (uint64_t count = 1; count < 100'000'000; count *= 5)
      EXPECT_NE(world.plan(0, shapeOf(Collective::AllReduce, count))->kernel, static_cast<KernelId>(without)) << count;
  }
  DeviceSettings settings = settingsFor(4);
  settings.hasLines = settings.hasBulk = settings.hasWindows = false;
  World world(4, settings);
  for (uint64_t count = 1; count < 100'000'000; count *= 5) {
    const KernelId kernel = world.plan(0, shapeOf(Collective::AllGather, count))->kernel;
    EXPECT_TRUE(kernel == KernelId::Cells || kernel == KernelId::Simple);
  }
}

TEST(DevicePlanner, TheUsersBoundsOnBlocksAreKeptExactly) {
  for (const int32_t most : {1, 2, 3, 7, 20, 32, 64}) {
    DeviceSettings settings = settingsFor(4);
    settings.maxChannels = most;
    settings.windowChannels = {most, most};
    World free(4, settings);
    EXPECT_EQ(free.plan(0, shapeOf(Collective::AllReduce, 64 << 20))->blocks(), most);
    settings.minChannels = most;
    settings.restrictions.tutti = filterOf("TUTTI_ALGO", "ring,oneshot,twoshot,direct");
    World world(4, settings);
    for (const Collective collective : {Collective::AllReduce, Collective::Broadcast, Collective::Reduce, Collective::ReduceScatter})
      EXPECT_EQ(world.plan(0, shapeOf(collective, 1 << 18))->blocks(), most) << name(collective) << " of " << most;
    EXPECT_LE(world.plan(0, shapeOf(Collective::AllReduce, 1))->blocks(), most);
    EXPECT_EQ(world.plan(0, shapeOf(Collective::Broadcast, 1))->blocks(), 1) << "there is one element";
  }
  DeviceSettings narrow = settingsFor(4);
  narrow.mostBlocks.fill(5);
  narrow.minChannels = 16;
  World world(4, narrow);
  EXPECT_EQ(world.plan(0, shapeOf(Collective::AllReduce, 64 << 20))->blocks(), 5) << "no more fit onto the device";
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
  std::memcpy(&head, nothing->program.words.data() + nothing->program.laneWords, sizeof head);
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

TEST(DevicePlanner, DeterministicCallsCombineInTheSameOrderWhateverTheirSize) {
  for (const bool hasWindows : {true, false}) {
    DeviceSettings settings = settingsFor(4);
    settings.hasWindows = hasWindows;
    settings.deterministic = true;
    World world(4, settings);
    for (const Collective collective : {Collective::AllReduce, Collective::Reduce})
      for (uint64_t count = 1; count < 200'000'000; count *= 9)
        EXPECT_EQ(algorithmOf(*world.plan(0, shapeOf(collective, count))).traits.order,
                  hasWindows ? algo::Order::RankAtOnce : algo::Order::RankHops)
            << name(collective) << count;
    EXPECT_EQ(world.plan(0, shapeOf(Collective::AllGather, 64 << 20))->algorithm, "ring") << "nothing is combined";
  }
  DeviceSettings apart = settingsFor(9);
  apart.deterministic = true;
  World world(9, apart);
  const Status status = world.failure(shapeOf(Collective::ReduceScatter, 100));
  EXPECT_EQ(status.code(), Code::InvalidUsage);
  EXPECT_NE(status.text().find("TUTTI_DETERMINISTIC"), std::string::npos) << status.text();
  EXPECT_NE(status.text().find("direct"), std::string::npos) << status.text();
  apart.restrictions.tutti = filterOf("TUTTI_ALGO", "ring");
  const Status restricted = World(9, apart).failure(shapeOf(Collective::AllReduce, 100));
  EXPECT_NE(restricted.text().find("TUTTI_DETERMINISTIC"), std::string::npos) << restricted.text();
}

/// Errors name what forbids and what there is.
TEST(DevicePlanner, ErrorsNameWhatStandsInTheWay) {
  const auto textOf = [](int32_t ranks, const DeviceSettings& settings, Collective collective) {
    const Status status = World(ranks, settings).failure(shapeOf(collective, 100));
    EXPECT_EQ(status.code(), Code::InvalidUsage) << status.text();
    return status.text();
  };
  const auto expectAll = [](const std::string& text, std::initializer_list<std::string_view> words) {
    for (const auto word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
  };
  DeviceSettings settings = settingsFor(4);
  settings.hasLines = false;
  settings.protocols = filterOf("NCCL_PROTO", "LL128");
  expectAll(textOf(4, settings, Collective::AllReduce), {"NCCL_PROTO=LL128", "AllReduce", "LL, Simple"});
  settings = settingsFor(4);
  settings.protocols = filterOf("NCCL_PROTO", "LL128");
  settings.restrictions.tutti = filterOf("TUTTI_ALGO", "oneshot");
  expectAll(textOf(4, settings, Collective::AllReduce), {"NCCL_PROTO=LL128", "oneshot", "LL, Simple"});
  settings = settingsFor(4);
  settings.restrictions.nccl = filterOf("NCCL_ALGO", "NVLS");
  expectAll(textOf(4, settings, Collective::AllReduce), {"NCCL_ALGO=NVLS", "ring", "tree"});
  settings = settingsFor(9);
  settings.restrictions.tutti = filterOf("TUTTI_ALGO", "twoshot");
  expectAll(textOf(9, settings, Collective::AllReduce), {"twoshot", "TUTTI_ALGO", "8 ranks"});
  settings = settingsFor(4);
  settings.maxChannels = 3;
  expectAll(textOf(4, settings, Collective::Gather), {"star", "4 blocks", "NCCL_MAX_CTAS", "3"});
  settings = settingsFor(4);
  settings.mostBlocks.fill(0);
  expectAll(textOf(4, settings, Collective::AllReduce), {"no kernel", "AllReduce"});
  settings = settingsFor(4);
  settings.slots = {2, 2, 2};
  settings.restrictions.tutti = filterOf("TUTTI_ALGO", "pat");
  expectAll(textOf(4, settings, Collective::AllGather), {"pat", "4 slots", "2"});
}

TEST(DevicePlanner, ProgramsThatFitNoKernelAreLeftOutOnAllRanks) {
  const int32_t n = 70;  // a ring has 139 steps
  DeviceSettings settings = settingsFor(n);
  World free(n, settings);
  for (const uint64_t count : {10ULL, 100'000'000ULL})
    ASSERT_NO_FATAL_FAILURE(checkCall(free, shapeOf(Collective::AllReduce, count), settings));
  EXPECT_NE(free.plan(0, shapeOf(Collective::AllReduce, 100'000'000))->algorithm, "ring");
  settings.restrictions.tutti = filterOf("TUTTI_ALGO", "ring");
  const Status status = World(n, settings).failure(shapeOf(Collective::AllReduce, 100));
  EXPECT_NE(status.text().find("139 steps"), std::string::npos) << status.text();
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
}  // namespace tutti::plan
