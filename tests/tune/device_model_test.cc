#include "tune/device_model.h"

#include <gtest/gtest.h>

#include "connect/channels.h"
#include "exec/cuda/moved.h"
#include "plan/device_planner.h"

namespace tutti::tune::device_model_test {
namespace {

using exec::cuda::KernelId;

constexpr uint64_t kMiB = uint64_t{1} << 20;

/// Microseconds in a graph: without a launch of its own.
double graphUs(std::string_view algorithm, KernelId kernel, uint64_t bytes, int32_t channels, uint64_t sliceBytes, uint64_t pieceBytes,
               int32_t ranks = 2, Collective collective = Collective::AllReduce, const DeviceMachine& machine = deviceMachine()) {
  const connect::Layout layout = connect::Layout::natural(ranks);
  DeviceModel model(layout, machine);
  const exec::record::Algorithm& a = *exec::record::findAlgorithm(collective, algorithm);
  const bool isBlocks = a.traits.division == algo::Division::Blocks;
  const uint64_t count = isBlocks ? bytes / static_cast<uint64_t>(ranks) : bytes;
  const algo::Geometry g = algo::makeGeometry(a.traits.division, count, a.chunks(ranks), DataType::U8, channels, sliceBytes);
  return model.estimateUs(a, kernel, g, DataType::U8, pieceBytes) - machine.launchUs;
}

/// What a communicator of two GPUs estimates, where nothing but one algorithm, protocol and number of blocks is allowed.
double forcedUs(Collective collective, std::string_view algorithm, std::string_view protocol, int32_t blocks, uint64_t bytes) {
  const connect::Layout layout = connect::Layout::natural(2);
  plan::DeviceSettings settings;
  settings.mostBlocks.fill(132);
  settings.slots = {4, 4, 4};
  settings.slotBytes = {57344, 16384, 61440};
  settings.shareBytes = {20480, 32768, 35840};  // of cells: 16 KiB carried data then
  settings.windowChannels = {32, 16, 64};
  settings.hasWindows = settings.hasLines = true;
  settings.minChannels = settings.maxChannels = blocks;
  settings.messageChannels = std::max(1, blocks / 2);
  settings.protocols = *Filter::parse("NCCL_PROTO", protocol, ncclProtocolNames());
  if (collective != Collective::SendRecv) settings.restrictions.tutti = *Filter::parse("TUTTI_ALGO", algorithm, tuttiAlgorithmNames());
  plan::DevicePlanner planner(layout, Rank(0), settings);
  plan::Shape shape;
  shape.collective = collective;
  shape.type = DataType::U8;
  shape.root = Rank(collective == Collective::SendRecv ? 1 : 0);
  const bool isBlocks =
      collective == Collective::AllGather || collective == Collective::ReduceScatter || collective == Collective::AllToAll;
  shape.count = isBlocks ? bytes / 2 : bytes;
  const auto summary = planner.summarize(shape);
  EXPECT_TRUE(summary) << (summary ? "" : summary.error().text());
  return summary ? summary->estimatedUs : 0;
}

/// bench/gpu/choice, and bench/gpu/compare with an algorithm and protocols forced: in graphs, 2 H200, one process a GPU.
TEST(DeviceModel, IsNearWhatWasMeasured) {
  const auto expectNear = [](Collective collective, std::string_view algorithm, std::string_view protocol, int32_t blocks, uint64_t bytes,
                             double measured) {
    const double estimate = forcedUs(collective, algorithm, protocol, blocks, bytes) - deviceMachine().launchUs;
    EXPECT_NEAR(estimate, measured, 0.4 * measured)
        << algorithm << " " << name(collective) << " " << protocol << " " << bytes << " " << blocks;
  };
  expectNear(Collective::AllReduce, "ring", "Simple", 64, 8388608, 40.70);
  expectNear(Collective::AllReduce, "ring", "Simple", 64, 33554432, 118.58);
  expectNear(Collective::AllReduce, "oneshot", "LL", 16, 32768, 2.47);
  expectNear(Collective::AllReduce, "oneshot", "LL", 32, 262144, 5.02);
  expectNear(Collective::AllReduce, "oneshot", "LL128", 48, 262144, 4.13);
  expectNear(Collective::AllReduce, "oneshot", "LL128", 64, 2097152, 12.02);
  expectNear(Collective::AllReduce, "twoshot", "LL128", 16, 65536, 4.64);
  expectNear(Collective::AllReduce, "twoshot", "LL128", 32, 262144, 5.15);
  expectNear(Collective::AllReduce, "twoshot", "LL128", 64, 2097152, 11.10);
  expectNear(Collective::AllGather, "direct", "LL128", 16, 32768, 2.54);
  expectNear(Collective::AllGather, "direct", "LL128", 32, 262144, 3.68);
  expectNear(Collective::AllGather, "direct", "LL128", 64, 2097152, 7.23);
  expectNear(Collective::ReduceScatter, "direct", "LL128", 16, 32768, 2.50);
  expectNear(Collective::ReduceScatter, "direct", "LL128", 32, 262144, 3.76);
  expectNear(Collective::ReduceScatter, "direct", "LL128", 64, 2097152, 7.22);
  expectNear(Collective::Broadcast, "ring", "Simple", 64, 8388608, 32.51);
  expectNear(Collective::Broadcast, "ring", "Simple", 64, 33554432, 102.97);
  expectNear(Collective::Broadcast, "direct", "LL", 16, 32768, 2.13);
  expectNear(Collective::Broadcast, "direct", "LL", 32, 262144, 3.83);
  expectNear(Collective::Reduce, "direct", "LL", 16, 32768, 2.09);
  expectNear(Collective::Reduce, "direct", "LL", 32, 262144, 3.74);
  expectNear(Collective::AllToAll, "p2p", "Simple", 64, 8388608, 32.79);
  expectNear(Collective::AllToAll, "p2p", "Simple", 64, 33554432, 78.71);
  expectNear(Collective::SendRecv, "p2p", "LL", 8, 32768, 4.26);
  expectNear(Collective::SendRecv, "p2p", "LL", 64, 524288, 8.49);
  expectNear(Collective::SendRecv, "p2p", "Simple", 64, 8388608, 41.80);
  expectNear(Collective::SendRecv, "p2p", "Simple", 64, 33554432, 115.47);
}

TEST(DeviceModel, GrowsWithBytesRanksAndWaitsAndShrinksWithBlocks) {
  const auto ring = [](uint64_t bytes, int32_t channels, int32_t ranks) {
    return graphUs("ring", KernelId::Simple, bytes, channels, 458752, 114688, ranks);
  };
  for (uint64_t bytes = 4096; bytes < 512 * kMiB; bytes *= 2) EXPECT_LT(ring(bytes, 8, 4), ring(2 * bytes, 8, 4)) << bytes;
  for (int32_t ranks = 2; ranks < 8; ++ranks) EXPECT_LT(ring(64 * kMiB, 8, ranks), ring(64 * kMiB, 8, ranks + 1)) << ranks;
  for (int32_t channels = 1; channels < 64; channels *= 2)
    EXPECT_GT(ring(256 * kMiB, channels, 4), ring(256 * kMiB, 2 * channels, 4)) << channels;
  EXPECT_LT(ring(8, 1, 4), ring(8, 32, 4)) << "blocks cost something";
}

/// bench/gpu/compare with TUTTI_ALGO, NCCL_PROTO=LL128 and numbers of blocks forced, in a graph, on 2 H200.
TEST(DeviceModel, IsNearWhatWasMeasuredOfWindowsOfLines) {
  const auto expectNear = [](std::string_view algorithm, Collective collective, uint64_t bytes, int32_t channels, double measured) {
    const double estimate = graphUs(algorithm, KernelId::LineWindow, bytes, channels, 33600, 0, 2, collective);
    EXPECT_NEAR(estimate, measured, measured / 4) << algorithm << " " << name(collective) << " " << bytes << " " << channels;
  };
  expectNear("oneshot", Collective::AllReduce, 32768, 16, 2.58);
  expectNear("oneshot", Collective::AllReduce, 16 * kMiB, 64, 65.9);
  expectNear("direct", Collective::AllGather, 262144, 16, 3.09);
  expectNear("direct", Collective::AllGather, 262144, 32, 3.68);
  expectNear("direct", Collective::AllGather, 2 * kMiB, 64, 7.23);
  expectNear("direct", Collective::AllGather, 16 * kMiB, 64, 34.7);
  expectNear("direct", Collective::ReduceScatter, 32768, 16, 2.50);
  expectNear("direct", Collective::ReduceScatter, 2 * kMiB, 64, 7.22);
  expectNear("direct", Collective::ReduceScatter, 16 * kMiB, 64, 35.5);
  expectNear("direct", Collective::AllToAll, 16 * kMiB, 64, 34.4);
}

/// The same on 2 H200 and on 4 H100. Shares that are not of one length are left to the kernel of lone calls.
TEST(DeviceModel, IsNearWhatWasMeasuredOfResultsThatAreForwarded) {
  const auto expectNear = [](int32_t ranks, uint64_t bytes, int32_t channels, double measured) {
    const double estimate =
        graphUs("twoshot", KernelId::LineWindow, bytes, channels, 33600, 0, ranks, Collective::AllReduce);
    EXPECT_NEAR(estimate, measured, measured / 5) << ranks << " ranks, " << bytes << ", " << channels;
  };
  expectNear(2, 65536, 16, 3.65);
  expectNear(2, 262144, 16, 5.10);
  expectNear(2, 524288, 48, 5.69);
  expectNear(2, kMiB, 64, 6.98);
  expectNear(2, 2 * kMiB, 64, 11.04);
  expectNear(2, 8 * kMiB, 64, 32.38);
  expectNear(2, 16 * kMiB, 64, 62.28);
  expectNear(4, 131072, 16, 6.17);
  expectNear(4, 262144, 32, 6.74);
  expectNear(4, 524288, 64, 7.78);
  expectNear(4, kMiB, 64, 9.95);
  expectNear(4, 2 * kMiB, 64, 16.78);
  expectNear(4, 8 * kMiB, 64, 47.24);
  const auto us = [](uint64_t bytes) { return graphUs("twoshot", KernelId::LineWindow, bytes, 64, 33600, 0, 4, Collective::AllReduce); };
  EXPECT_GT(us(kMiB + 4), us(kMiB) + 0.5);
}

/// bench/gpu/compare --only all_gather --buffers windows with TUTTI_COPY_ENGINES=1, and with NCCL_CTA_POLICY=2, in a graph, on 2 H100.
TEST(DeviceModel, IsNearWhatWasMeasuredOfCopiesAndOfOneBlock) {
  const auto copies = [](uint64_t bytes) { return copyUs(deviceMachine(), 2, bytes / 2, CopyOrder::InTurns) - deviceMachine().launchUs; };
  const auto moved = [](uint64_t bytes) { return movedUs(deviceMachine(), bytes) - deviceMachine().launchUs; };
  EXPECT_NEAR(copies(262144), 19.8, 2);
  EXPECT_NEAR(copies(kMiB), 20.3, 2);
  EXPECT_NEAR(copies(4 * kMiB), 26.6, 2.7);
  EXPECT_NEAR(copies(16 * kMiB), 45.5, 4.5);
  EXPECT_NEAR(copies(64 * kMiB), 111, 11);
  EXPECT_NEAR(copies(1024 * kMiB), 1400, 70);
  EXPECT_NEAR(moved(4096), 7.35, 0.7);
  EXPECT_NEAR(moved(65536), 7.95, 0.8);
  EXPECT_NEAR(moved(262144), 11.9, 1.2);
  EXPECT_NEAR(moved(524288), 18.6, 1.9);
  EXPECT_LT(moved(262144), copies(262144));
  EXPECT_GT(moved(kMiB), copies(kMiB));
}

/// The same on 4 H100.
TEST(DeviceModel, IsNearWhatWasMeasuredOfCopiesToSeveralPeers) {
  const auto gathered = [](uint64_t bytes, CopyOrder order) {
    return copyUs(deviceMachine(), 4, bytes / 4 * 3, order) - deviceMachine().launchUs;
  };
  EXPECT_NEAR(gathered(4 * kMiB, CopyOrder::AtOnce), 37.7, 3.8);
  EXPECT_NEAR(gathered(16 * kMiB, CopyOrder::InTurns), 67.8, 6.8);
  EXPECT_NEAR(gathered(64 * kMiB, CopyOrder::InTurns), 165, 8);
  EXPECT_NEAR(gathered(256 * kMiB, CopyOrder::InTurns), 548, 27);
  EXPECT_NEAR(gathered(1024 * kMiB, CopyOrder::InTurns), 2087, 100);
  EXPECT_NEAR(copyUs(deviceMachine(), 4, 3 * 256 * kMiB, CopyOrder::ByOne) - deviceMachine().launchUs, 2061, 100);
}

/// bench/gpu/compare --only all_reduce --buffers windows-a --ctas 6,8,10,12 with TUTTI_COPY_ENGINES=1, in a graph, on 2 H200.
TEST(DeviceModel, IsNearWhatWasMeasuredOfWhatEnginesCarry) {
  const auto expectNear = [](uint64_t mebibytes, int32_t parts, int32_t blocks, double measured) {
    const uint64_t share = mebibytes * kMiB / 2;
    const double estimate = carriedUs(deviceMachine(), 2, share, parts, blocks) - deviceMachine().launchUs;
    EXPECT_NEAR(estimate, measured, measured / 20) << mebibytes << " MiB in " << parts << " parts on " << blocks;
    EXPECT_GE(estimate, carriedAtLeastUs(deviceMachine(), 2, share) - deviceMachine().launchUs);
  };
  expectNear(32, 2, 12, 136.2);
  expectNear(32, 3, 8, 151.4);
  expectNear(64, 2, 6, 294.6);
  expectNear(64, 3, 12, 213.9);
  expectNear(128, 4, 8, 412.7);
  expectNear(256, 2, 8, 856.4);
  expectNear(256, 2, 12, 735.7);
  expectNear(256, 3, 8, 772.4);
  expectNear(256, 3, 10, 727.9);
  expectNear(256, 4, 6, 873.5);
  expectNear(256, 4, 8, 740.5);
  expectNear(1024, 2, 8, 3235.1);
  expectNear(1024, 3, 6, 3389.6);
  expectNear(1024, 4, 8, 2795.6);
}

/// bench/gpu/compare --only all_gather --buffers windows-a with TUTTI_MAPPED=1, in a graph, on 2 and 4 H200 and 4 H100.
TEST(DeviceModel, IsNearWhatWasMeasuredOfMovesBySeveralBlocks) {
  const auto expectNear = [](int32_t ranks, uint64_t bytes, int32_t blocks, double measured) {
    const int32_t givers = exec::cuda::giversOf(blocks, ranks - 1, true);
    const uint64_t sent = bytes / static_cast<uint64_t>(ranks) * static_cast<uint64_t>(ranks - 1);
    const double estimate = movedTogetherUs(deviceMachine(), sent, blocks, givers) - deviceMachine().launchUs;
    EXPECT_NEAR(estimate, measured, measured / 10) << ranks << " ranks, " << bytes << " bytes on " << blocks;
  };
  expectNear(2, 4 * kMiB, 24, 12.9);
  expectNear(2, 16 * kMiB, 24, 30.5);
  expectNear(2, 128 * kMiB, 24, 191);
  expectNear(2, 128 * kMiB, 20, 203);
  expectNear(2, 16 * kMiB, 12, 46.4);
  expectNear(2, 128 * kMiB, 12, 350);
  expectNear(4, 16 * kMiB, 32, 46.4);
  expectNear(4, 64 * kMiB, 32, 153.8);
  expectNear(4, 256 * kMiB, 32, 587);
}

/// Reduces on 4 H200: straight to the root 11.5, 21.4 and 41.5 us, over rings of lines 9.6, 13.5 and 21.2.
TEST(DeviceModel, ARootOfManyIsReachedFasterOverARing) {
  for (const uint64_t bytes : {kMiB, 2 * kMiB, 4 * kMiB}) {
    const double straight = graphUs("direct", KernelId::LineWindow, bytes, 64, 17920, 0, 4, Collective::Reduce);
    const double ring = graphUs("ring", KernelId::Lines, bytes, bytes == kMiB ? 48 : 64, 57600, 57600, 4, Collective::Reduce);
    EXPECT_LT(ring, straight) << bytes;
  }
}

/// bench/gpu/compare --buffers windows-a with TUTTI_MAPPED=1, in a graph, on 2 H100.
TEST(DeviceModel, IsNearWhatWasMeasuredOfMappedCalls) {
  const auto expectNear = [](Collective collective, uint64_t bytes, int32_t blocks, double measured) {
    const double estimate = mappedUs(deviceMachine(), collective, 2, bytes / 2, blocks) - deviceMachine().launchUs;
    EXPECT_NEAR(estimate, measured, measured / 10) << name(collective) << " " << bytes << " " << blocks;
  };
  expectNear(Collective::AllReduce, kMiB, 12, 12.3);
  expectNear(Collective::AllReduce, 4 * kMiB, 12, 21.7);
  expectNear(Collective::AllReduce, 64 * kMiB, 12, 210);
  expectNear(Collective::AllReduce, 256 * kMiB, 12, 815);
  expectNear(Collective::AllReduce, 256 * kMiB, 8, 842);
  expectNear(Collective::ReduceScatter, 16 * kMiB, 12, 37.2);
  expectNear(Collective::ReduceScatter, 256 * kMiB, 12, 436);
  expectNear(Collective::ReduceScatter, 256 * kMiB, 8, 579);
}

// What early launches and brief calls have changed is not charged to kernels that have neither.
TEST(DeviceModel, ChargesLateGridsAndRoundsToLoneCallsAlone) {
  DeviceMachine machine = deviceMachine();
  const auto us = [&](std::string_view algorithm, KernelId kernel, uint64_t bytes = kMiB) {
    return graphUs(algorithm, kernel, bytes, 16, 33600, 57344, 4, Collective::AllReduce, machine);
  };
  const double simple = us("twoshot", KernelId::Simple), ring = us("ring", KernelId::Simple);
  const double even = us("twoshot", KernelId::LineWindow), uneven = us("twoshot", KernelId::LineWindow, kMiB + 4);
  machine.lateUs += 10;
  machine.roundsUs += 10;
  machine.roundsBlocks *= 2;
  EXPECT_EQ(us("twoshot", KernelId::Simple), simple);
  EXPECT_EQ(us("ring", KernelId::Simple), ring);
  EXPECT_GT(us("twoshot", KernelId::LineWindow, kMiB + 4), uneven + 10) << "so few blocks are early";
  EXPECT_DOUBLE_EQ(us("twoshot", KernelId::LineWindow), even + 10) << "late, but brief";
  machine.forwardUs += 10;
  machine.forwardBlocks *= 2;
  EXPECT_GT(us("twoshot", KernelId::LineWindow), even + 20);
  EXPECT_EQ(us("twoshot", KernelId::Simple), simple);
}

// What the kernels of lone calls carry out has their cost, not that of the Window kernel, which costs more.
TEST(DeviceModel, KnowsTheKernelsOfLoneCalls) {
  const double lone = graphUs("oneshot", KernelId::Window, 8192, 1, 8192, 0);
  EXPECT_LT(lone, 6);
  EXPECT_GT(graphUs("oneshot", KernelId::Window, 8193, 1, 8192, 0), lone) << "a second slice";
  EXPECT_LT(graphUs("direct", KernelId::Window, 8, 1, 8192, 0, 2, Collective::Reduce), 8);
}

// Store and forward: short slices are passed on sooner; a ring all-reduce moves other bytes in every step and gains nothing.
TEST(DeviceModel, ShortSlicesHelpWhereBytesGoFromRankToRank) {
  const auto us = [](Collective collective, uint64_t sliceBytes) {
    return graphUs("ring", KernelId::Simple, 4 * kMiB, 32, sliceBytes, 114688, 8, collective);
  };
  EXPECT_LT(us(Collective::Broadcast, 28672), us(Collective::Broadcast, 114688) - 5);
  EXPECT_GE(us(Collective::AllReduce, 28672), us(Collective::AllReduce, 114688));
}

TEST(DeviceModel, AMessageCostsTheSameInEveryCommunicator) {
  const auto us = [](int32_t ranks) { return graphUs("p2p", KernelId::Simple, kMiB, 4, 458752, 114688, ranks, Collective::SendRecv); };
  EXPECT_EQ(us(2), us(3));
  EXPECT_EQ(us(2), us(64));
  EXPECT_GT(us(2), graphUs("p2p", KernelId::Simple, 8, 4, 458752, 114688, 2, Collective::SendRecv)) << "its bytes count";
}

/// What a communicator would choose.
plan::Summary chosen(Collective collective, uint64_t count, int32_t ranks, const DeviceMachine& machine = deviceMachine()) {
  const connect::Layout layout = connect::Layout::natural(ranks);
  plan::DeviceSettings settings;
  settings.mostBlocks.fill(132);
  settings.hasWindows = ranks <= exec::cuda::kMaxLocalRanks;
  settings.hasLines = true;
  settings.machine = machine;
  plan::DevicePlanner planner(layout, Rank(0), settings);
  plan::Shape shape;
  shape.collective = collective;
  shape.type = DataType::U8;
  shape.root = Rank(collective == Collective::SendRecv ? 1 : 0);
  shape.count = count;
  const auto summary = planner.summarize(shape);
  EXPECT_TRUE(summary) << (summary ? "" : summary.error().text());
  return summary ? *summary : plan::Summary();
}

TEST(DeviceModel, TheBestEstimateHardlyEverFallsAsCallsGrow) {
  for (const Collective collective : {Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter, Collective::Broadcast,
                                      Collective::Reduce, Collective::AllToAll, Collective::Gather, Collective::SendRecv}) {
    for (const int32_t ranks : {2, 4, 8, 9}) {
      double before = 0;
      for (uint64_t count = 8; count <= 1024 * kMiB; count *= 2) {
        const double us = chosen(collective, count, ranks).estimatedUs;
        EXPECT_GE(us, before * 0.98) << name(collective) << " " << ranks << " " << count;
        EXPECT_LT(us, 20 + 2.5 * (before == 0 ? 100 : before)) << name(collective) << " " << ranks << " " << count;
        before = us;
      }
    }
  }
}

TEST(DeviceModel, ChannelsGrowWithTheCall) {
  int32_t before = 1;
  for (uint64_t count = 8; count <= 65536; count *= 2) {
    const int32_t channels = chosen(Collective::AllReduce, count, 2).channels;
    EXPECT_GE(channels, before);
    before = channels;
  }
  EXPECT_GT(before, 8);
}

TEST(DeviceModel, TheTableDecides) {
  EXPECT_EQ(chosen(Collective::AllReduce, 256 * kMiB, 4).kernel, "simple");
  DeviceMachine machine = deviceMachine();
  machine.kernels[static_cast<size_t>(KernelId::Simple)].linkGBs = 30;
  machine.kernels[static_cast<size_t>(KernelId::LineWindow)].linkGBs = 30;
  EXPECT_EQ(chosen(Collective::AllReduce, 256 * kMiB, 4, machine).kernel, "lines");
  EXPECT_EQ(chosen(Collective::AllReduce, 8, 4).kernel, "window");
  machine.kernels[static_cast<size_t>(KernelId::LineWindow)].startUs = 100;
  machine.kernels[static_cast<size_t>(KernelId::Window)].startUs = 100;
  machine.lone.startUs = 100;
  EXPECT_EQ(chosen(Collective::AllReduce, 8, 4, machine).kernel, "cells");
  machine.kernels[static_cast<size_t>(KernelId::Cells)].startUs = 100;
  machine.kernels[static_cast<size_t>(KernelId::Simple)].startUs = 100;
  EXPECT_EQ(chosen(Collective::AllReduce, 8, 4, machine).kernel, "lines");
}

/// Three rings of 20 GB/s, each over links of its own: a call that keeps them all busy ends three times sooner than one on the first.
TEST(DeviceModel, RingsAreAsFastAsTheLinksOfTheirTracks) {
  connect::NodeGraphs node;
  node.ranks = {0, 1, 2, 3};
  node.rings = {{0, 1, 2, 3}, {0, 2, 3, 1}, {3, 2, 1, 0}};
  node.trees = node.rings;
  node.ringGBpsIntra = node.treeGBpsIntra = 20;
  const auto channels = connect::connectNodes({&node, 1}, {});
  ASSERT_TRUE(channels) << channels.error().text();
  const connect::Layout mesh = connect::Layout::ofChannels(*channels, {&node, 1});
  const exec::record::Algorithm& ring = *exec::record::findAlgorithm(Collective::AllGather, "ring");
  const auto timeOf = [](const exec::record::Algorithm& algorithm, KernelId kernel, const connect::Layout& layout, int32_t count) {
    DeviceModel model(layout, deviceMachine());
    const uint64_t bytes = 256 * kMiB;
    const algo::Geometry g = algo::makeGeometry(algorithm.traits.division, bytes / 4, 4, DataType::U8, count, kMiB);
    return model.estimate(algorithm, kernel, g, DataType::U8, kMiB).trafficUs;
  };
  const auto usOf = [&](const connect::Layout& layout, int32_t count) { return timeOf(ring, KernelId::Simple, layout, count); };
  const double bytes = 256.0 * kMiB;
  EXPECT_GE(usOf(mesh, 1), bytes * 3 / 4 / 20e3) << "one ring's links";
  EXPECT_GT(usOf(mesh, 2) - usOf(mesh, 3), bytes * 3 / 4 * (1 / 40e3 - 1 / 60e3) * 0.99);
  EXPECT_GT(usOf(mesh, 4), usOf(mesh, 3)) << "a fourth channel has its part on a ring that has one already";
  EXPECT_LT(usOf(mesh, 6), usOf(mesh, 4));
  for (const char* const name : {"pat", "hierarchical", "direct", "twoshot"}) {
    const exec::record::Algorithm* const other = exec::record::findAlgorithm(Collective::AllGather, name);
    if (other == nullptr) continue;
    const KernelId kernel = other->traits.needs == algo::Needs::PeerMemory ? KernelId::Window : KernelId::Simple;
    EXPECT_GE(timeOf(*other, kernel, mesh, 6), bytes * 3 / 4 / 60e3 * 0.99) << name << " has no more links than the rings together";
  }
  EXPECT_LT(usOf(connect::Layout::natural(4), 6), usOf(mesh, 6)) << "where links are not known, the constants of the machine hold";
}

TEST(DeviceModel, MessagesHaveKernelsOfTheirOwn) {
  const auto us = [](KernelId kernel, const DeviceMachine& machine, int32_t ranks = 2) {
    return graphUs("p2p", kernel, kMiB, 16, 57600, 57600, ranks, Collective::SendRecv, machine);
  };
  DeviceMachine machine = deviceMachine();
  machine.lineMessages.startUs += 100;
  EXPECT_NEAR(us(KernelId::Lines, machine), us(KernelId::Lines, deviceMachine()) + 100, 1e-6);
  EXPECT_EQ(us(KernelId::Cells, machine), us(KernelId::Cells, deviceMachine()));
  EXPECT_EQ(us(KernelId::Lines, machine, 16), us(KernelId::Lines, deviceMachine(), 16)) << "more ranks than such a kernel has room for";
  machine = deviceMachine();
  machine.messages.startUs += 100;
  EXPECT_NEAR(us(KernelId::Cells, machine), us(KernelId::Cells, deviceMachine()) + 100, 1e-6);
}

}  // namespace
}  // namespace tutti::tune::device_model_test
