#include "tune/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <tuple>

namespace tutti::tool {
namespace {

/// What a machine with these constants would have shown.
std::vector<Probe> probesOf(const tune::Machine& machine, int32_t cores) {
  std::vector<Probe> probes;
  for (const int32_t ranks : {cores, 2 * cores})
    for (const auto& [collective, algorithm] : {std::pair{Collective::AllReduce, "oneshot"}, {Collective::AllReduce, "ring"},
                                                {Collective::AllGather, "direct"}, {Collective::Broadcast, "ring"}})
      for (const uint64_t bytes : {8u, 4096u, 65536u, 1u << 20, 8u << 20}) {
        Probe probe;
        probe.collective = collective;
        probe.bytes = bytes;
        probe.ranks = ranks;
        probe.algorithm = algorithm;
        probe.us = estimateUs(probe, machine, cores);
        probes.push_back(probe);
      }
  return probes;
}

TEST(FitHost, FindsTheConstantsOfAMadeUpMachine) {
  tune::Machine machine = tune::hostMachine();
  machine.hopNs = 90;
  machine.switchNs = 9000;
  machine.messageNs = 55;
  machine.bytesPerNs = 6;
  const auto probes = probesOf(machine, 4);
  for (const Probe& probe : probes) ASSERT_TRUE(std::isfinite(probe.us) && probe.us > 0);
  const Calibration found = fitHost(probes, tune::hostMachine(), 4);
  EXPECT_GT(found.before, 1.5);
  EXPECT_LT(found.after, 1.1);
  EXPECT_NEAR(found.machine.hopNs, 90, 40) << "messages take the rest";
  EXPECT_NEAR(found.machine.switchNs, 9000, 1800);
  EXPECT_NEAR(found.machine.bytesPerNs, 6, 0.6);
  EXPECT_EQ(found.machine.farHopNs, tune::hostMachine().farHopNs) << "nothing was measured over a network";
}

TEST(FitHost, OneDisturbedCallDoesNotBendTheRest) {
  auto probes = probesOf(tune::hostMachine(), 4);
  probes[7].us *= 50;
  const Calibration found = fitHost(probes, tune::hostMachine(), 4);
  EXPECT_NEAR(found.machine.bytesPerNs, tune::hostMachine().bytesPerNs, 1);
  EXPECT_NEAR(found.machine.hopNs, tune::hostMachine().hopNs, 30);
}

TEST(FitDevices, FindsTheConstantsOfMadeUpGpus) {
  tune::DeviceMachine machine = tune::deviceMachine();
  machine.launchUs = 9;
  tune::KernelCost& simple = machine.kernels[static_cast<size_t>(exec::cuda::KernelId::Simple)];
  simple.linkGBs = 200;
  simple.hopUs = 6;
  std::vector<Probe> probes;
  for (const auto& [algorithm, protocol, blocks] : {std::tuple{"oneshot", "LL", 1}, {"ring", "Simple", 8}, {"ring", "Simple", 64}})
    for (const uint64_t bytes : {8u, 1u << 20, 64u << 20}) {
      Probe probe;
      probe.bytes = bytes;
      probe.ranks = 4;
      probe.algorithm = algorithm;
      probe.protocol = protocol;
      probe.blocks = blocks;
      probe.us = estimateUs(probe, machine);
      ASSERT_TRUE(std::isfinite(probe.us) && probe.us > 0) << algorithm;
      probes.push_back(probe);
    }
  const DeviceCalibration found = fitDevices(probes, tune::deviceMachine());
  EXPECT_GT(found.before, 1.2);
  EXPECT_LT(found.after, 1.1);
  EXPECT_NEAR(found.machine.kernels[static_cast<size_t>(exec::cuda::KernelId::Simple)].linkGBs, 200, 60);
  EXPECT_EQ(found.machine.kernels[static_cast<size_t>(exec::cuda::KernelId::Bulk)].hopUs, tune::deviceMachine().kernels[4].hopUs)
      << "nothing ran on it";
}

TEST(MeasureHost, TimesEveryCall) {
  ASSERT_EQ(setenv("TUTTI_DEVICE", "host", 1), 0);
  const auto probes = measureHost(2);
  ASSERT_TRUE(probes) << probes.error().text();
  EXPECT_EQ(probes->size(), 30u);
  for (const Probe& probe : *probes) {
    EXPECT_GT(probe.us, 0) << probe.algorithm;
    EXPECT_FALSE(probe.algorithm.empty());
    EXPECT_TRUE(std::isfinite(estimateUs(probe, tune::hostMachine(), 2)));
  }
}

}  // namespace
}  // namespace tutti::tool
