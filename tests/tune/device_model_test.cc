#include "tune/device_model.h"

#include <gtest/gtest.h>

#include "plan/device_planner.h"

namespace tutti::tune {
namespace {

using exec::cuda::KernelId;

constexpr uint64_t kMiB = uint64_t{1} << 20;

/// Microseconds in a graph: without a launch of its own.
double graphUs(std::string_view algorithm, KernelId kernel, uint64_t bytes, int32_t channels, uint64_t sliceBytes, uint64_t pieceBytes,
               int32_t ranks = 2, Collective collective = Collective::AllReduce, const DeviceMachine& machine = {}) {
  const connect::Layout layout = connect::Layout::natural(ranks);
  DeviceModel model(layout, machine);
  const exec::record::Algorithm& a = *exec::record::findAlgorithm(collective, algorithm);
  const bool isBlocks = a.traits.division == algo::Division::Blocks;
  const uint64_t count = isBlocks ? bytes / static_cast<uint64_t>(ranks) : bytes;
  const algo::Geometry g = algo::makeGeometry(a.traits.division, count, a.chunks(ranks), DataType::U8, channels, sliceBytes);
  return model.estimateUs(a, kernel, g, DataType::U8, pieceBytes) - machine.launchUs;
}

/// docs/decisions/0014: what was measured on 2 GPUs, fitted within a fifth.
TEST(DeviceModel, IsNearWhatWasMeasured) {
  const auto expectNear = [](double estimate, double measured) { EXPECT_NEAR(estimate, measured, measured / 5); };
  expectNear(graphUs("oneshot", KernelId::Window, 8, 1, 8192, 0), 2.5);
  expectNear(graphUs("oneshot", KernelId::Window, 65536, 16, 8192, 0), 3.7);
  expectNear(graphUs("twoshot", KernelId::Window, 8, 1, 8192, 0), 3.9);
  expectNear(graphUs("twoshot", KernelId::Window, 65536, 16, 8192, 0), 4.8);
  expectNear(graphUs("oneshot", KernelId::Window, 8, 1, 8192, 0, 4), 3.3);
  expectNear(graphUs("ring", KernelId::Cells, 8, 1, 65536, 16384), 11.3);
  expectNear(graphUs("ring", KernelId::Lines, 65536, 32, 230400, 57600), 14.3);
  expectNear(graphUs("ring", KernelId::Lines, kMiB, 32, 230400, 57600), 18.8);
  expectNear(graphUs("ring", KernelId::Lines, 16 * kMiB, 32, 230400, 57600), 118);
  expectNear(graphUs("ring", KernelId::Simple, 8, 1, 458752, 114688), 15.9);
  expectNear(graphUs("twoshot", KernelId::Simple, 65536, 16, 16384, 0), 18.6);
  expectNear(graphUs("twoshot", KernelId::Simple, kMiB, 16, 16384, 0), 31.1);
  const double bytes = 256 * kMiB;
  expectNear(graphUs("ring", KernelId::Simple, 256 * kMiB, 32, 458752, 114688), bytes / 299e3);
  expectNear(graphUs("ring", KernelId::Simple, 256 * kMiB, 64, 458752, 114688), bytes / 332e3);
  expectNear(graphUs("ring", KernelId::Simple, 256 * kMiB, 128, 458752, 114688), bytes / 354e3);
  expectNear(graphUs("ring", KernelId::Simple, 256 * kMiB, 32, 458752, 114688, 2, Collective::AllGather), bytes / 2 / 261e3);
  expectNear(graphUs("ring", KernelId::Simple, 256 * kMiB, 16, 458752, 114688, 2, Collective::AllGather), bytes / 2 / 207e3);
  expectNear(graphUs("ring", KernelId::Bulk, 256 * kMiB, 8, 458752, 114688, 2, Collective::AllGather), bytes / 2 / 87e3);
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

// Of one slice the kernel of small calls carries out, of two the Window kernel.
TEST(DeviceModel, KnowsTheKernelOfSmallCalls) {
  const double small = graphUs("oneshot", KernelId::Window, 8192, 1, 8192, 0);
  const double twoSlices = graphUs("oneshot", KernelId::Window, 8193, 1, 8192, 0);
  EXPECT_GT(twoSlices, small + 2);
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
plan::Summary chosen(Collective collective, uint64_t count, int32_t ranks, const DeviceMachine& machine = {}) {
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
  DeviceMachine machine;
  machine.kernels[static_cast<size_t>(KernelId::Simple)].linkGBs = 30;
  EXPECT_EQ(chosen(Collective::AllReduce, 256 * kMiB, 4, machine).kernel, "lines");
  EXPECT_EQ(chosen(Collective::AllReduce, 8, 4).kernel, "window");
  machine.kernels[static_cast<size_t>(KernelId::Window)].startUs = 100;
  machine.small.startUs = 100;
  EXPECT_EQ(chosen(Collective::AllReduce, 8, 4, machine).kernel, "simple") << "one flight there is faster than six";
  machine.kernels[static_cast<size_t>(KernelId::Simple)].startUs = 100;
  EXPECT_EQ(chosen(Collective::AllReduce, 8, 4, machine).kernel, "cells");
}

}  // namespace
}  // namespace tutti::tune
