#include "driver/nvml/nvml.h"

#include <gtest/gtest.h>

#include "driver/nvml/fake.h"
#include "driver/nvml/real.h"

namespace tutti::driver::nvml::nvml_test {
namespace {

constexpr const char* kFirst = "0000:1b:00.0";
constexpr const char* kSecond = "0000:1c:00.0";
constexpr const char* kSwitch = "0000:a5:00.0";

std::vector<FakeDevice> machine() {
  FabricInfo fabric;
  fabric.version = kFabricInfoVersion;
  fabric.state = FabricState::Completed;
  fabric.clique = 7;
  return {{kFirst, {kSwitch, "", kSecond}, fabric}, {kSecond, {}, std::nullopt}};
}

struct Started {
  explicit Started(std::vector<FakeDevice> devices, PeerStatus peers = PeerStatus::Ok) {
    auto api = std::make_unique<FakeApi>(std::move(devices), peers);
    fake = api.get();
    auto started = Nvml::start(std::move(api));
    EXPECT_TRUE(started) << started.error().text();
    nvml = std::move(*started);
  }
  FakeApi* fake = nullptr;
  std::unique_ptr<Nvml> nvml;
};

TEST(Nvml, LinksThatAreUpAndWhatTheyLeadTo) {
  const Started play(machine());
  const auto device = play.nvml->find(kFirst);
  ASSERT_TRUE(device) << device.error().text();
  const auto links = play.nvml->links(*device);
  ASSERT_TRUE(links) << links.error().text();
  ASSERT_EQ(links->size(), 2u);
  EXPECT_EQ((*links)[0].number, 0u);
  EXPECT_EQ((*links)[0].remote, RemoteType::Switch);
  EXPECT_EQ((*links)[0].remoteBusId, kSwitch);
  EXPECT_EQ((*links)[0].version, 6u);
  EXPECT_EQ((*links)[1].number, 2u);
  EXPECT_EQ((*links)[1].remote, RemoteType::Gpu);
  EXPECT_EQ((*links)[1].remoteBusId, kSecond);
  EXPECT_TRUE(play.nvml->links(*play.nvml->find(kSecond))->empty()) << "no links are no error";
  EXPECT_EQ(play.nvml->index(*play.nvml->find(kSecond)).value_or(9), 1u);
  EXPECT_EQ(*play.nvml->uuid(*device), "GPU-0000:1b:00.0");
}

TEST(Nvml, AllDevicesButThoseThatAreNotForThisProcess) {
  std::vector<FakeDevice> devices = machine();
  devices[1].sm = 103;
  devices.push_back({"0000:1d:00.0", {}, std::nullopt, 90, true});
  const Started play(std::move(devices));
  const auto all = play.nvml->all();
  ASSERT_TRUE(all) << all.error().text();
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ((*all)[0].busId, kFirst);
  EXPECT_EQ((*all)[1].busId, kSecond);
  EXPECT_EQ(play.nvml->capability((*all)[1]).value_or(0), 103);
  for (size_t nth = 1; nth <= 5; ++nth) {
    play.fake->failAt(nth);
    const auto failed = play.nvml->all();
    ASSERT_FALSE(failed) << nth;
    EXPECT_NE(failed.error().text().find(play.fake->failed()), std::string::npos) << failed.error().text();
  }
}

TEST(Nvml, AFabricOrNone) {
  const Started play(machine());
  const auto with = play.nvml->fabric(*play.nvml->find(kFirst));
  ASSERT_TRUE(with && *with);
  EXPECT_EQ((*with)->clique, 7u);
  const auto without = play.nvml->fabric(*play.nvml->find(kSecond));
  ASSERT_TRUE(without);
  EXPECT_FALSE(*without);
}

TEST(Nvml, WhyPeersCannot) {
  const Started play(machine(), PeerStatus::DisabledByRegistry);
  const auto status = play.nvml->peerStatus(*play.nvml->find(kFirst), *play.nvml->find(kSecond), PeerCapability::Read);
  ASSERT_TRUE(status);
  EXPECT_STREQ(describe(*status), "disabled by a registry key");
}

TEST(Nvml, UnknownDevicesAreErrors) {
  const Started play(machine());
  const auto none = play.nvml->find("0000:ff:00.0");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().text(), "nvmlDeviceGetHandleByPciBusId_v2(0000:ff:00.0) failed: Some Error (6)");
  EXPECT_EQ(none.error().code(), Code::SystemError);
}

TEST(Nvml, BusIdsHaveOneForm) {
  EXPECT_EQ(canonicalBusId("00000000:1B:00.0"), "0000:1b:00.0");
  EXPECT_EQ(canonicalBusId("0000:1b:00.0"), "0000:1b:00.0");
  EXPECT_EQ(canonicalBusId("00010000:1B:00.0"), "00010000:1b:00.0") << "a domain of more than four digits stays";
  EXPECT_EQ(canonicalBusId("0001AB00:00:00.0"), "0001ab00:00:00.0");
  EXPECT_EQ(canonicalBusId("1b:00.0"), "1b:00.0");
  EXPECT_EQ(canonicalBusId(""), "");
}

Status askEverything(Nvml& nvml) {
  const auto first = nvml.find(kFirst);
  if (!first) return first.error();
  const auto second = nvml.find(kSecond);
  if (!second) return second.error();
  if (const auto index = nvml.index(*first); !index) return index.error();
  if (const auto uuid = nvml.uuid(*first); !uuid) return uuid.error();
  if (const auto links = nvml.links(*first); !links) return links.error();
  if (const auto status = nvml.peerStatus(*first, *second, PeerCapability::NvLink); !status) return status.error();
  const auto fabric = nvml.fabric(*first);
  return fabric ? Status() : fabric.error();
}

TEST(Nvml, EveryCallMayFail) {
  size_t nth = 1;
  for (;; ++nth) {
    const Started play(machine());
    play.fake->failAt(nth);
    const Status status = askEverything(*play.nvml);
    EXPECT_EQ(play.fake->started(), 1);
    if (play.fake->failed() == nullptr) {
      EXPECT_TRUE(status.ok()) << status.text();
      break;
    }
    EXPECT_EQ(status.text().rfind(std::string(play.fake->failed()) + "(", 0), 0u) << nth << ": " << status.text();
    EXPECT_NE(status.text().find("failed: Unknown Error (999)"), std::string::npos) << status.text();
  }
  EXPECT_GT(nth, 25u);
}

TEST(Nvml, WhatDoesNotStartIsAnErrorAndNotShutDown) {
  auto api = std::make_unique<FakeApi>(machine());
  api->failAt(1);
  const auto started = Nvml::start(std::move(api));
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().text(), "nvmlInit_v2() failed: Unknown Error (999)");
}

TEST(RealNvml, NoLibraryIsAnErrorThatNamesIt) {
  const auto api = openNvml("libnvidia-ml-of-no-machine.so.1");
  ASSERT_FALSE(api);
  EXPECT_EQ(api.error().code(), Code::SystemError);
  EXPECT_NE(api.error().text().find("no NVML: libnvidia-ml-of-no-machine.so.1"), std::string::npos) << api.error().text();
}

TEST(RealNvml, AnotherLibraryLacksWhatIsNeeded) {
  const auto api = openNvml("libm.so.6");
  ASSERT_FALSE(api);
  EXPECT_EQ(api.error().text().rfind("libm.so.6 lacks functions that are needed: nvmlInit_v2, ", 0), 0u) << api.error().text();
}

}  // namespace
}  // namespace tutti::driver::nvml::nvml_test
