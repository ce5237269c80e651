// Which network ranks on several hosts use, and what becomes of them when they do not agree. Each process claims a host of its own.
#include <gtest/gtest.h>

#include <cstdlib>

#include "faults/process_ranks.h"

namespace tutti::faults {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
using Self = ProcessRanks::Self;

void liveOnOwnHost(const Self& self, const char* network) {
  setenv("NCCL_HOSTID", ("host" + std::to_string(self.index())).c_str(), 1);
  setenv("NCCL_NET_PLUGIN", "example", 1);
  setenv("NCCL_DEBUG", "INFO", 1);
  if (network != nullptr) setenv("NCCL_NET", network, 1);
}

/// Joins with a network named by the configuration.
ncclResult_t join(Self& self, const char* network, ncclComm_t* comm) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.netName = network;
  return ncclCommInitRankConfig(comm, self.count(), self.id(), self.index(), &config);
}

void sumOver(const char* environment, const char* configured, const char* expected) {
  ProcessRanks children(3, [=](Self& child) {
    liveOnOwnHost(child, environment);
    ncclComm_t comm = nullptr;
    ASSERT_EQ(join(child, configured, &comm), ok) << ncclGetLastError(nullptr);
    for (const size_t count : {size_t{1}, size_t{1001}, size_t{300'000}}) EXPECT_EQ(sumOnce(comm, 3, count), ok) << ncclGetLastError(comm);
    EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  children.expectAllWell();
  EXPECT_NE(children.end(1).text.find(std::string("Using network ") + expected), std::string::npos) << children.end(1).text;
}

TEST(Networks, AnExternalOneIsTakenBeforeSockets) { sumOver(nullptr, nullptr, "Example"); }
TEST(Networks, TheConfigurationNamesOne) { sumOver(nullptr, "socket", "Socket"); }
TEST(Networks, TheEnvironmentWins) { sumOver("EXAMPLE", "Socket", "Example"); }

TEST(Networks, OneThatIsNotThereIsAnError) {
  ProcessRanks children(2, [](Self& self) {
    liveOnOwnHost(self, "IB");
    ncclComm_t comm = nullptr;
    EXPECT_EQ(join(self, nullptr, &comm), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("no network 'ib'"), std::string::npos) << ncclGetLastError(nullptr);
  });
  children.expectAllWell();
}

TEST(Networks, DifferentOnesAreRefusedOnBothSides) {
  ProcessRanks children(2, [](Self& self) {
    liveOnOwnHost(self, self.index() == 0 ? "Socket" : "Example");
    ncclComm_t comm = nullptr;
    ASSERT_EQ(join(self, nullptr, &comm), ok) << ncclGetLastError(nullptr);
    EXPECT_EQ(sumOnce(comm, 2), ncclInvalidUsage);
    for (const char* words : {"network Socket", "network Example", "NCCL_NET"})
      EXPECT_NE(std::string(ncclGetLastError(nullptr)).find(words), std::string::npos) << ncclGetLastError(nullptr);
    EXPECT_EQ(ncclCommAbort(comm), ok);
  });
  children.expectAllWell();
}

}  // namespace
}  // namespace tutti::faults
