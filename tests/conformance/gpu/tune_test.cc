// `tutti tune --gpus N`: measuring through nccl.h and fitting, on GPUs that are none. Times mean nothing here; what was called does.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>
#include <string>

#include "conformance/gpu/fake_gpus.h"
#include "driver/cuda/driver.h"
#include "tune/calibrate.h"

namespace tutti::conformance::tune_test {
namespace {

using driver::cuda::Driver;

struct GpuTune : ::testing::Test {
  void SetUp() override { ASSERT_EQ(setenv("TUTTI_CACHE_DIR", "none", 1), 0); }
};

TEST_F(GpuTune, EveryCallIsMeasuredAndCanBeEstimated) {
  FakeGpus gpus(2);
  Driver cuda(gpus.borrow());
  ASSERT_TRUE(cuda.init().ok());
  const auto probes = tool::measureGpus(2, cuda);
  ASSERT_TRUE(probes) << probes.error().text();
  ASSERT_EQ(probes->size(), 30U);
  std::set<std::string> protocols;
  for (const tool::Probe& probe : *probes) {
    EXPECT_GT(probe.us, 0) << probe.algorithm;
    EXPECT_EQ(probe.ranks, 2);
    EXPECT_GE(probe.blocks, 1) << probe.algorithm;
    EXPECT_FALSE(probe.protocol.empty()) << probe.algorithm;
    protocols.insert(probe.protocol);
    EXPECT_TRUE(std::isfinite(tool::estimateUs(probe, tune::deviceMachine())))
        << name(probe.collective) << " of " << probe.bytes << " B by " << probe.algorithm << " " << probe.protocol << " " << probe.blocks;
  }
  EXPECT_GE(protocols.size(), 2U) << "small and large calls run on different kernels";
  const tool::DeviceCalibration found = tool::fitDevices(*probes, tune::deviceMachine());
  EXPECT_LE(found.after, found.before);
  EXPECT_GT(found.machine.launchUs, 0);
}

TEST_F(GpuTune, MoreGpusThanThereAreIsAnErrorThatSaysHowMany) {
  FakeGpus gpus(2);
  Driver cuda(gpus.borrow());
  ASSERT_TRUE(cuda.init().ok());
  const auto probes = tool::measureGpus(3, cuda);
  ASSERT_FALSE(probes);
  EXPECT_EQ(probes.error().text(), "3 GPUs: this machine has 2");
}

}  // namespace
}  // namespace tutti::conformance::tune_test
