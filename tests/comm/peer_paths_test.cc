// Which GPUs are near enough to each other, on a machine without NVLink: two behind one switch, one beside it, one at the other processor.
#include "comm/peer_paths.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "../driver/cuda/play.h"
#include "config/params.h"

namespace tutti::comm::peer_paths_test {
namespace {

using driver::cuda::FakeOptions;
using driver::cuda::play::World;
using topo::PathType;

std::string gpu(const char* busId, int dev) {
  return format(
      R"(<pci busid="0000:{}:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16"><gpu dev="{}" sm="80" rank="{}"/></pci>)",
      busId, dev, dev);
}

/// With the bus ids of the fake's devices.
std::string machine() {
  constexpr const char* kCpu = R"(affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="106")";
  return format(R"(<system version="1"><cpu numaid="0" {}><pci busid="0000:10:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" )", kCpu) +
         R"(link_width="16">)" + gpu("1a", 0) + gpu("1b", 1) + "</pci>" + gpu("1c", 2) +
         format(R"(</cpu><cpu numaid="1" {}>)", kCpu) + gpu("1d", 3) + "</cpu></system>";
}

struct Machine {
  explicit Machine(FakeOptions options = {.devices = 4, .nvlink = false})
      : world(std::move(options)), paths([this](driver::cuda::Driver&) {
          ++looks;
          return topo::parseXml("machine", machine());
        }) {}
  /// The devices that device 0 may use, as digits.
  std::string near(std::optional<PathType> level) {
    std::string found;
    for (int32_t other = 1; other < 4; ++other) {
      const auto may = paths.allow(*world.driver, level, 0, other);
      EXPECT_TRUE(may) << may.error().text();
      if (may && *may) found += std::to_string(other);
    }
    return found;
  }
  World world;
  int looks = 0;
  PeerPaths paths;
};

TEST(PeerPaths, TheLevelDecides) {
  Machine host;
  EXPECT_EQ(host.near(PathType::Loc), "");
  EXPECT_EQ(host.near(PathType::Nvl), "");
  EXPECT_EQ(host.near(PathType::Pix), "1");
  EXPECT_EQ(host.near(std::nullopt), "1");
  EXPECT_EQ(host.near(PathType::Phb), "12");
  EXPECT_EQ(host.near(PathType::Sys), "123");
  EXPECT_EQ(host.looks, 1) << "the machine stays what it is";
}

TEST(PeerPaths, WhatNvLinkConnectsIsNearWithoutALook) {
  Machine host({.devices = 4});
  EXPECT_EQ(host.near(PathType::Nvl), "123");
  EXPECT_EQ(host.near(std::nullopt), "123");
  EXPECT_EQ(host.near(PathType::Loc), "");
  EXPECT_EQ(host.looks, 0);
}

TEST(PeerPaths, AMachineThatCannotBeLookedAtForbidsNothing) {
  World world({.devices = 2, .nvlink = false});
  PeerPaths paths([](driver::cuda::Driver&) -> Result<topo::Document> { return fail(Code::SystemError, "no files"); });
  EXPECT_TRUE(*paths.allow(*world.driver, PathType::Pix, 0, 1));
  EXPECT_FALSE(*paths.allow(*world.driver, PathType::Loc, 0, 1));
}

TEST(PeerPaths, ThisHostCanBeLookedAt) {
  World world({.devices = 2, .nvlink = false});
  const auto found = PeerPaths::detectHost(*world.driver);
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_TRUE(topo::identicalNodes(*found, 1, false, {})) << "with the GPUs of the driver in it";
}

TEST(PeerPaths, LevelsAreThoseOfTheVariable) {
  for (const auto& [text, level] : {std::pair("", std::optional<PathType>()), std::pair("PHB", std::optional(PathType::Phb)),
                                    std::pair("0", std::optional(PathType::Loc))}) {
    setenv("NCCL_P2P_LEVEL", text, 1);
    config::resetForTest();
    const auto read = readPeerLevel();
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_EQ(*read, level) << text;
  }
  setenv("NCCL_P2P_LEVEL", "FAR", 1);
  config::resetForTest();
  EXPECT_EQ(readPeerLevel().error().code(), Code::InvalidUsage);
  unsetenv("NCCL_P2P_LEVEL");
  config::resetForTest();
}

/// What the file says of GPUs that the kernel does not know counts, here as for layouts.
TEST(PeerPaths, TheTopologyFileComesFirst) {
  World world({.devices = 4, .nvlink = false});
  const auto near = [&world](PathType level, int32_t other) {
    PeerPaths paths;
    const auto may = paths.allow(*world.driver, level, 0, other);
    EXPECT_TRUE(may) << may.error().text();
    return may && *may;
  };
  EXPECT_TRUE(near(PathType::Phb, 3)) << "all below one CPU, as far as anybody knows";
  const std::string path = testing::TempDir() + "tutti_peer_paths_" + std::to_string(getpid()) + ".xml";
  ASSERT_TRUE(topo::writeText(path, machine()).ok());
  setenv("NCCL_TOPO_FILE", path.c_str(), 1);
  EXPECT_TRUE(near(PathType::Pix, 1));
  EXPECT_FALSE(near(PathType::Phb, 3)) << "at the other processor";
  unsetenv("NCCL_TOPO_FILE");
  unlink(path.c_str());
}

}  // namespace
}  // namespace tutti::comm::peer_paths_test
