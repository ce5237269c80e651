// Which devices a process uses, and when GPUs are opened.
#include "comm/devices.h"

#include <cstdlib>
#include <thread>

#include "config/params.h"
#include "device_play.h"

namespace tutti::comm::devices_test {
namespace {

using play::Gpus;

class DevicesTest : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("TUTTI_DEVICE");
    unsetenv("TUTTI_MEM_LIMIT");
    setenv("NCCL_CONF_FILE", "/dev/null", 1);
    config::resetForTest();
  }
  void TearDown() override { SetUp(); }
  static void set(const char* variable, const char* value) {
    setenv(variable, value, 1);
    config::resetForTest();
  }
};

Devices withoutDriver() {
  return Devices([]() -> Result<std::unique_ptr<driver::cuda::Api>> { return fail(Code::SystemError, "no libcuda here"); },
                 [] {
                   static std::vector<play::Launched> none;
                   return std::make_unique<play::WrittenDown>(none);
                 });
}

TEST_F(DevicesTest, GpusAreUsedWhereThereAreSome) {
  Gpus gpus;
  const auto use = gpus.devices.useGpus();
  ASSERT_TRUE(use) << use.error().text();
  EXPECT_TRUE(*use);
  EXPECT_EQ(*gpus.devices.count(), 2);
  EXPECT_EQ(*gpus.devices.current(), 0) << "a thread that has chosen none";
}

TEST_F(DevicesTest, HostDevicesOpenNoDriver) {
  Gpus gpus;
  set("TUTTI_DEVICE", "host");
  EXPECT_FALSE(*gpus.devices.useGpus());
  EXPECT_EQ(gpus.fake, nullptr);
}

TEST_F(DevicesTest, WhatIsMissingIsSaidToWhoAsksForIt) {
  Devices none = withoutDriver();
  EXPECT_FALSE(*none.useGpus());
  set("TUTTI_DEVICE", "cuda");
  const auto asked = none.useGpus();
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error().code(), Code::InvalidUsage);
  EXPECT_NE(asked.error().text().find("no libcuda here"), std::string::npos) << asked.error().text();
  Devices noKernels([]() -> Result<std::unique_ptr<driver::cuda::Api>> { return std::make_unique<driver::cuda::FakeApi>(); },
                    [] { return std::unique_ptr<exec::cuda::Executor>(); });
  ASSERT_FALSE(noKernels.useGpus());
  EXPECT_NE(noKernels.useGpus().error().text().find("no CUDA kernels"), std::string::npos);
  Gpus noDevice(driver::cuda::FakeOptions{.devices = 0});
  ASSERT_FALSE(noDevice.devices.useGpus());
  set("TUTTI_DEVICE", "fpga");
  ASSERT_FALSE(none.useGpus());
  EXPECT_NE(none.useGpus().error().text().find("auto, cuda, host"), std::string::npos);
}

TEST_F(DevicesTest, AGpuIsOpenedOnce) {
  Gpus gpus;
  ASSERT_TRUE(*gpus.devices.useGpus());
  EXPECT_EQ(gpus.devices.find(1), nullptr);
  std::vector<std::thread> threads;
  std::vector<Device*> seen(4);
  for (size_t i = 0; i < seen.size(); ++i) threads.emplace_back([&, i] { seen[i] = *gpus.devices.at(1); });
  for (std::thread& t : threads) t.join();
  for (const Device* device : seen) EXPECT_EQ(device, seen[0]);
  EXPECT_EQ(gpus.devices.find(1), seen[0]);
  EXPECT_EQ(gpus.devices.find(0), nullptr);
  EXPECT_EQ(gpus.fake->alive().contexts, 1u);
  EXPECT_EQ(seen[0]->kernels.of[0].blocksPerMultiprocessor, 1);
  EXPECT_FALSE(gpus.devices.at(2));
}

TEST_F(DevicesTest, TheBudgetIsTheUsers) {
  set("TUTTI_MEM_LIMIT", "3145728");
  Gpus gpus;
  ASSERT_TRUE(*gpus.devices.useGpus());
  Device& device = **gpus.devices.at(0);
  EXPECT_TRUE(device.pool.take(memory::Purpose::Pipes, Bytes(1 << 20)));
  EXPECT_FALSE(device.pool.take(memory::Purpose::Pipes, Bytes(3 << 20)));
  const auto user = gpus.devices.allocate(Bytes(8 << 20));
  ASSERT_TRUE(user) << user.error().text();
  EXPECT_TRUE(gpus.devices.free(*user));
  EXPECT_FALSE(gpus.devices.free(*user));
}

}  // namespace
}  // namespace tutti::comm::devices_test
