#include "topo/detect/driver.h"

#include <gtest/gtest.h>

#include "driver/nvml/fake.h"
#include "topo/view.h"

namespace tutti::topo::detect::driver_test {
namespace {

using driver::nvml::FakeApi;
using driver::nvml::FakeDevice;
using driver::nvml::Nvml;

std::unique_ptr<Nvml> start(std::unique_ptr<FakeApi> api) {
  auto nvml = Nvml::start(std::move(api));
  EXPECT_TRUE(nvml.has_value());
  return nvml ? *std::move(nvml) : nullptr;
}

std::vector<FakeDevice> pair() {
  return {{.busId = "0000:1b:00.0", .links = {"0000:43:00.0", "", "0000:43:00.0", "0000:a1:00.0"}, .fabric = std::nullopt},
          {.busId = "0000:43:00.0", .links = {"0000:1b:00.0", "0000:1b:00.0", "0000:a1:00.0"}, .fabric = std::nullopt}};
}

TEST(Driver, LinksThatAreUpAreCountedByTheirOtherSide) {
  const auto nvml = start(std::make_unique<FakeApi>(pair()));
  const auto facts = askNvml(*nvml, "0000:1b:00.0", 90, true);
  ASSERT_TRUE(facts.has_value()) << facts.error().text();
  EXPECT_EQ(facts->dev, 0);
  ASSERT_EQ(facts->nvlinks.size(), 2u);
  EXPECT_EQ(facts->nvlinks[0].target, "0000:43:00.0");
  EXPECT_EQ(facts->nvlinks[0].count, 2);
  EXPECT_EQ(facts->nvlinks[1].target, "0000:a1:00.0");
  EXPECT_EQ(facts->nvlinks[1].count, 1);
}

TEST(Driver, WhatItSaysBecomesAMachineEvenWhereTheKernelHidesIt) {
  const auto nvml = start(std::make_unique<FakeApi>(pair()));
  const Sysfs nothing("/no/such/root");
  Document machine = emptyMachine();
  for (const char* busId : {"0000:1b:00.0", "0000:43:00.0"}) {
    const auto facts = askNvml(*nvml, busId, 90, true);
    ASSERT_TRUE(facts.has_value());
    ASSERT_TRUE(addGpu(machine, nothing, *facts).ok());
  }
  const auto view = makeView(machine, *identicalNodes(machine, 1, false, {}));
  ASSERT_TRUE(view.has_value()) << view.error().text();
  const LinkId direct = view->system.linkBetween(view->system.gpuOfRank(0), view->system.gpuOfRank(1), LinkType::Nvl);
  ASSERT_NE(direct, kNoLink);
  EXPECT_FLOAT_EQ(view->system.at(direct).GBps, 2 * 20.6F);
  EXPECT_EQ(view->system.count(NodeKind::NvSwitch), 1);
}

TEST(Driver, LinksToTheCpuThatAreUpAreCounted) {
  std::vector<FakeDevice> devices = pair();
  devices[0].c2cMBps = {44712, 0, 44712};
  const auto nvml = start(std::make_unique<FakeApi>(std::move(devices)));
  const auto with = askNvml(*nvml, "0000:1b:00.0", 90, true);
  ASSERT_TRUE(with.has_value()) << with.error().text();
  EXPECT_EQ(with->c2cLinks, 2);
  EXPECT_EQ(with->c2cMBps, 44712);
  const auto without = askNvml(*nvml, "0000:43:00.0", 90, true);
  ASSERT_TRUE(without.has_value());
  EXPECT_EQ(without->c2cLinks, 0);
}

TEST(Driver, EachFailureOfTheLibraryIsPassedOn) {
  for (size_t nth = 1; nth <= 3; ++nth) {
    auto api = std::make_unique<FakeApi>(pair());
    FakeApi* fake = api.get();
    const auto nvml = start(std::move(api));
    fake->failAt(nth);
    const auto facts = askNvml(*nvml, "0000:1b:00.0", 90, true);
    ASSERT_FALSE(facts.has_value()) << nth;
    EXPECT_EQ(facts.error().code(), Code::SystemError);
    ASSERT_NE(fake->failed(), nullptr);
    EXPECT_NE(facts.error().text().find(fake->failed()), std::string::npos) << facts.error().text();
  }
  const auto nvml = start(std::make_unique<FakeApi>(pair()));
  EXPECT_FALSE(askNvml(*nvml, "0000:99:00.0", 90, true).has_value());
}

}  // namespace
}  // namespace tutti::topo::detect::driver_test
