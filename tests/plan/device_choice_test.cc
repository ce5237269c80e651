#include "device_world.h"
#include "plan/device_planner.h"

namespace tutti::plan::device_choice_test {
namespace {

TEST(DeviceChoice, SmallCallsTakeWindowsAndLargeOnesTheRing) {
  for (const int32_t n : {2, 4}) {
    DeviceSettings settings = settingsFor(n);
    World world(n, settings);
    const PlanPtr small = world.plan(0, shapeOf(Collective::AllReduce, 2));
    EXPECT_EQ(small->algorithm, "oneshot");
    EXPECT_EQ(small->kernel, KernelId::Window);
    EXPECT_EQ(small->blocks(), 1);
    EXPECT_EQ(small->work.geometry.slices, 1);
    const PlanPtr middle = world.plan(0, shapeOf(Collective::AllReduce, 16384));
    EXPECT_TRUE(middle->kernel == KernelId::Window || middle->kernel == KernelId::LineWindow) << static_cast<int>(middle->kernel);
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

/// Between few ranks that all send, while there are few; the choice is that of the longer slices.
TEST(DeviceChoice, SlicesOverWindowsOfLinesAreWhatABlockStoresAtOnce) {
  const auto sliceBytes = [](int32_t ranks, Collective collective, uint64_t bytes) {
    DeviceSettings settings = settingsFor(ranks);
    settings.shareBytes[2] = 35840;
    settings.maxChannels = 64;
    settings.windowChannels.fill(64);
    settings.protocols = filterOf("NCCL_PROTO", "LL128");
    settings.restrictions.tutti = filterOf("TUTTI_ALGO", "twoshot,direct");
    World world(ranks, settings);
    const PlanPtr plan = world.plan(0, shapeOf(collective, bytes / sizeof(float)));
    EXPECT_EQ(plan->kernel, KernelId::LineWindow);
    EXPECT_EQ(plan->blocks(), 64);
    return plan->work.geometry.sliceElems * sizeof(float);
  };
  constexpr uint64_t kBatch = 192 * 120, kBatchOfSeveral = 96 * 120, kLong = 280 * 120;
  for (const Collective collective : {Collective::AllGather, Collective::ReduceScatter, Collective::AllToAll}) {
    EXPECT_EQ(sliceBytes(2, collective, 8 << 20), kBatch) << name(collective);
    EXPECT_EQ(sliceBytes(2, collective, 8'847'360), kBatch) << "six slices of " << name(collective);
    EXPECT_EQ(sliceBytes(2, collective, 8'847'424), kLong) << "seven";
    EXPECT_EQ(sliceBytes(4, collective, 2'211'840), kBatchOfSeveral) << "three slices of " << name(collective);
    EXPECT_EQ(sliceBytes(4, collective, 2'211'904), kLong) << "four";
    EXPECT_EQ(sliceBytes(5, collective, 1 << 20), kLong) << "not measured between five";
  }
  EXPECT_EQ(sliceBytes(2, Collective::AllReduce, 8 << 20), kBatch);
  EXPECT_EQ(sliceBytes(4, Collective::AllReduce, 8 << 20), kBatchOfSeveral);
  EXPECT_EQ(sliceBytes(2, Collective::Broadcast, 4 << 20), kLong) << "half of the ranks send";
}

TEST(DeviceChoice, KernelsThatAreNotThereAreNotChosen) {
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

TEST(DeviceChoice, TheUsersBoundsOnBlocksAreKeptExactly) {
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

/// A lane a rank, or two: fewer blocks than lanes cannot carry them out.
TEST(DeviceChoice, TheUsersBoundNeverForbidsACall) {
  for (const int32_t n : {2, 4, 8, 9, 16}) {
    for (const int32_t most : {1, 2, 3, 5, 8, 17}) {
      DeviceSettings settings = settingsFor(n);
      settings.maxChannels = most;
      settings.hasWindows = false;
      World world(n, settings);
      for (const Collective collective : kCalls) {
        SCOPED_TRACE(format("{} of {} ranks, {} blocks", name(collective), n, most));
        for (const uint64_t count : {1ULL, 3000ULL, 10'000'000ULL})
          ASSERT_NO_FATAL_FAILURE(checkCall(world, shapeOf(collective, count, DataType::F32, n - 1), settings));
        const bool isStar = collective == Collective::Gather || collective == Collective::Scatter;
        const int32_t lanes = isStar ? n : collective == Collective::AllToAll ? 2 * n - 1 : 1;
        EXPECT_LE(world.plan(0, shapeOf(collective, 10'000'000))->blocks(), std::max(most, lanes)) << "others keep to the bound";
      }
    }
  }
  DeviceSettings settings = settingsFor(4);
  settings.maxChannels = 3;
  World windows(4, settings);
  EXPECT_EQ(windows.plan(0, shapeOf(Collective::AllToAll, 1 << 22))->algorithm, "direct") << "one lane: the bound is kept";
  settings.restrictions.tutti = filterOf("TUTTI_ALGO", "tree,p2p");
  World forced(4, settings);
  EXPECT_EQ(forced.plan(0, shapeOf(Collective::AllReduce, 1 << 22))->blocks(), 4) << "nothing else is allowed";
  EXPECT_EQ(forced.plan(0, shapeOf(Collective::AllToAll, 1 << 22))->blocks(), 7);
  settings = settingsFor(9);
  settings.maxChannels = 1;
  settings.deterministic = true;
  EXPECT_EQ(World(9, settings).plan(0, shapeOf(Collective::AllReduce, 1 << 22))->algorithm, "chain") << "the only one in rank order";
  settings.mostBlocks.fill(8);
  EXPECT_EQ(World(9, settings).failure(shapeOf(Collective::Gather, 100)).code(), Code::InvalidUsage) << "9 blocks do not fit";
}

TEST(DeviceChoice, DeterministicCallsCombineInTheSameOrderWhateverTheirSize) {
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
TEST(DeviceChoice, ErrorsNameWhatStandsInTheWay) {
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
  settings.restrictions.tutti = filterOf("TUTTI_ALGO", "oneshot");
  expectAll(textOf(4, settings, Collective::AllReduce), {"NCCL_PROTO=LL128", "oneshot", "LL, Simple"});
  settings = settingsFor(4);
  settings.restrictions.nccl = filterOf("NCCL_ALGO", "NVLS");
  expectAll(textOf(4, settings, Collective::AllReduce), {"NCCL_ALGO=NVLS", "ring", "tree"});
  settings = settingsFor(9);
  settings.restrictions.tutti = filterOf("TUTTI_ALGO", "twoshot");
  expectAll(textOf(9, settings, Collective::AllReduce), {"twoshot", "TUTTI_ALGO", "8 ranks"});
  settings = settingsFor(4);
  settings.mostBlocks.fill(3);
  settings.restrictions.tutti = filterOf("TUTTI_ALGO", "star");
  expectAll(textOf(4, settings, Collective::Gather), {"star", "4 blocks", "3 fit onto the device"});
  settings = settingsFor(4);
  settings.mostBlocks.fill(0);
  expectAll(textOf(4, settings, Collective::AllReduce), {"no kernel", "AllReduce"});
  settings = settingsFor(4);
  settings.slots = {2, 2, 2};
  settings.restrictions.tutti = filterOf("TUTTI_ALGO", "pat");
  expectAll(textOf(4, settings, Collective::AllGather), {"pat", "4 slots", "2"});
}

TEST(DeviceChoice, ProgramsThatFitNoKernelAreLeftOutOnAllRanks) {
  const int32_t n = 70;  // a ring has 139 steps
  DeviceSettings settings = settingsFor(n);
  World free(n, settings);
  for (const uint64_t count : {10ULL, 100'000'000ULL})
    ASSERT_NO_FATAL_FAILURE(checkCall(free, shapeOf(Collective::AllReduce, count), settings));
  EXPECT_NE(free.plan(0, shapeOf(Collective::AllReduce, 100'000'000))->algorithm, "ring");
  settings.restrictions.tutti = filterOf("TUTTI_ALGO", "ring");
  const Status status = World(n, settings).failure(shapeOf(Collective::AllReduce, 100));
  EXPECT_NE(status.text().find("139 steps"), std::string::npos) << status.text();
  // Of a gather, the root alone has more ends than fit: the others must not begin it.
  settings.maxChannels = 128;
  settings.restrictions.tutti = filterOf("TUTTI_ALGO", "star");
  const Status gather = World(n, settings).failure(shapeOf(Collective::Gather, 100, DataType::F32, n - 1));
  EXPECT_NE(gather.text().find("69 ends"), std::string::npos) << gather.text();
}

}  // namespace
}  // namespace tutti::plan::device_choice_test
