#include "tune/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <tuple>

namespace tutti::tool::calibrate_test {
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

// What was replayed holds no launch: fitted as if it did, the start of the kernel would be off by one.
TEST(FitDevices, LeavesLaunchesOutOfWhatWasReplayed) {
  tune::DeviceMachine machine = tune::deviceMachine();
  machine.messages.startUs = 6;
  std::vector<Probe> probes;
  for (const uint64_t bytes : {8U, 4096U, 65536U}) {
    Probe probe;
    probe.collective = Collective::SendRecv;
    probe.bytes = bytes;
    probe.ranks = 2;
    probe.algorithm = "p2p";
    probe.protocol = "LL";
    probe.blocks = 2;
    probe.us = estimateUs(probe, machine) - machine.launchUs;
    probes.push_back(probe);
  }
  const DeviceCalibration found = fitDevices(probes, tune::deviceMachine(), true);
  EXPECT_EQ(found.machine.launchUs, machine.launchUs);
  EXPECT_LT(found.after, 1.05);
  // What takes as long for every size: the start and the hop, which the probes cannot tell apart.
  const auto fixedUs = [](const tune::DeviceMachine& m) { return m.messages.startUs + m.messages.hopUs; };
  EXPECT_NEAR(fixedUs(found.machine), fixedUs(machine), 0.3);
  EXPECT_GT(fitDevices(probes, tune::deviceMachine(), false).machine.launchUs, 0);
}

TEST(ParseProbes, TakesWhatTheSweepWrites) {
  const auto probes = parseProbes(
      "a.json", R"([{"call": "sendrecv", "bytes": 8, "ranks": 2, "algorithm": "p2p", "protocol": "LL", "blocks": 2, "us": 3.1}])");
  ASSERT_TRUE(probes) << probes.error().text();
  ASSERT_EQ(probes->size(), 1U);
  EXPECT_EQ(probes->front().collective, Collective::SendRecv);
  EXPECT_EQ(probes->front().us, 3.1);
}

TEST(ParseProbes, NamesFileAndEntryOfNonsense) {
  const auto refusal = [](const std::string& text) {
    const auto probes = parseProbes("a.json", text);
    return probes ? std::string("accepted") : probes.error().text();
  };
  EXPECT_EQ(refusal("[]"), "a.json: entry 0: expected a list of calls");
  for (const char* text : {"", "{", "[1]", "{}"}) EXPECT_TRUE(refusal(text).starts_with("a.json: entry 0: ")) << text;
  const std::string good = R"({"call": "reduce", "bytes": 8, "ranks": 2, "algorithm": "direct", "protocol": "LL", "blocks": 2, "us": 3.1})";
  for (const auto& [from, to] : {std::pair{"reduce", "juggle"}, {"\"us\": 3.1", "\"us\": -1"}, {"\"ranks\": 2", "\"ranks\": 99"}}) {
    std::string bad = good;
    bad.replace(bad.find(from), std::string(from).size(), to);
    EXPECT_TRUE(refusal("[" + good + "," + bad + "]").starts_with("a.json: entry 1: ")) << bad;
  }
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
}  // namespace tutti::tool::calibrate_test
