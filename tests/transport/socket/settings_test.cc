#include "transport/socket/settings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "config/params.h"
#include "core/thread.h"

namespace tutti::transport::socket::settings_test {
namespace {

TEST(Streams, AreNoneUnlessAskedForOrKnownToHelp) {
  const Settings automatic;
  EXPECT_EQ(chooseStreams(automatic, 0).data(), 0);
  EXPECT_EQ(chooseStreams(automatic, 0x8086).data(), 0);
  EXPECT_EQ(chooseStreams(automatic, 0x1d0f).threads, 2);
  EXPECT_EQ(chooseStreams(automatic, 0x1d0f).socketsPerThread, 8);
  EXPECT_EQ(chooseStreams(automatic, 0x1ae0).threads, 4);
  EXPECT_EQ(chooseStreams(automatic, 0x1ae0).socketsPerThread, 1);
}

TEST(Streams, AreBoundedInThreadsAndInAll) {
  EXPECT_EQ(chooseStreams({.threads = 3, .socketsPerThread = 5}, 0).data(), 15);
  EXPECT_EQ(chooseStreams({.threads = 100, .socketsPerThread = 1}, 0).threads, 16);
  EXPECT_EQ(chooseStreams({.threads = 16, .socketsPerThread = 16}, 0).data(), 64);
  EXPECT_EQ(chooseStreams({.threads = 16, .socketsPerThread = 2'000'000'000}, 0).data(), 64);
  EXPECT_EQ(chooseStreams({.threads = 0, .socketsPerThread = 4}, 0).data(), 0);
  EXPECT_EQ(chooseStreams({.threads = -1, .socketsPerThread = 4}, 0).data(), 4) << "sockets want a thread";
  EXPECT_EQ(chooseStreams({.threads = 2, .socketsPerThread = -1}, 0).data(), 2);
}

TEST(Streams, HelpersLeaveCoresToThoseWhoWait) {
  EXPECT_EQ(helperThreads({.cores = 1}, 4), 0);
  EXPECT_EQ(helperThreads({.cores = 2}, 4), 0);
  EXPECT_EQ(helperThreads({.cores = 3}, 4), 0);
  EXPECT_EQ(helperThreads({.cores = 4}, 4), 1);
  EXPECT_EQ(helperThreads({.cores = 16}, 4), 4);
  EXPECT_EQ(helperThreads({.cores = 16}, 16), 7);
}

TEST(Settings, AreReadFromTheEnvironment) {
  setenv("NCCL_SOCKET_NTHREADS", "3", 1);
  setenv("NCCL_NSOCKS_PERTHREAD", "2", 1);
  setenv("NCCL_SOCKET_MIN_TASKSIZE", "1000", 1);
  setenv("NCCL_SOCKET_INLINE", "64", 1);
  setenv("NCCL_SOCKET_RCVBUF", "4096", 1);
  setenv("NCCL_SOCKET_SNDBUF", "8192", 1);
  setenv("NCCL_SOCKET_RETRY_CNT", "5", 1);
  setenv("NCCL_SOCKET_RETRY_SLEEP_MSEC", "7", 1);
  config::resetForTest();
  const Settings settings = readSettings();
  EXPECT_EQ(settings.threads, 3);
  EXPECT_EQ(settings.socketsPerThread, 2);
  EXPECT_EQ(settings.minTaskBytes, 1000U);
  EXPECT_EQ(settings.inlineBytes, 64U);
  EXPECT_EQ(settings.receiveBuffer, 4096);
  EXPECT_EQ(settings.sendBuffer, 8192);
  EXPECT_EQ(settings.retryCount, 5);
  EXPECT_EQ(settings.retrySleepMs, 7);
  EXPECT_EQ(settings.cores, availableCores());
}

TEST(Vendor, OfWhatIsNoInterfaceIsUnknown) {
  EXPECT_EQ(readVendor("lo"), 0U);
  EXPECT_EQ(readVendor("../../etc"), 0U);
  EXPECT_EQ(readVendor(""), 0U);
}

TEST(Settings, SpeedIsWhatTheInterfaceSays) {
  const std::filesystem::path root = std::filesystem::path(testing::TempDir()) / ("sysfs-" + std::to_string(getpid()));
  const auto say = [&](const char* interface, const char* speed) {
    std::filesystem::create_directories(root / "class/net" / interface);
    std::ofstream(root / "class/net" / interface / "speed") << speed << '\n';
  };
  say("eth0", "1000");
  say("ib0", "200000");
  say("virbr0", "-1");
  say("odd", "fast");
  const std::string at = root.string();
  EXPECT_EQ(readSpeedMbps("eth0", at), 1000);
  EXPECT_EQ(readSpeedMbps("ib0", at), 200000);
  for (const char* name : {"virbr0", "odd", "none", "", "../net/eth0"}) EXPECT_EQ(readSpeedMbps(name, at), 0) << name;
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace tutti::transport::socket::settings_test
