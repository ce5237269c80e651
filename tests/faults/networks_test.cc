// Which network ranks on several hosts use, and what becomes of them when they do not agree. Each process claims a host of its own.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "faults/process_ranks.h"

namespace tutti::faults::networks_test {
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
  EXPECT_EQ(children.end(0).text.find("follow the order of hosts"), std::string::npos)
      << "its devices have a place: " << children.end(0).text;
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

/// A host with so many devices; the example plugin says what each of them is used for.
void liveWithDevices(int host, int devices) {
  setenv("NCCL_HOSTID", ("host" + std::to_string(host)).c_str(), 1);
  setenv("NCCL_NET_PLUGIN", "example", 1);
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_SUBSYS", "INIT,GRAPH,NET", 1);
  setenv("NET_EXAMPLE_DEVICES", std::to_string(devices).c_str(), 1);
}

/// How often the plugin was asked for a device.
int countUses(const std::string& text, const char* what, int device) {
  const std::string line = std::string("NET/Example : ") + what + " device " + std::to_string(device) + "\n";
  int count = 0;
  for (size_t at = text.find(line); at != std::string::npos; at = text.find(line, at + 1)) ++count;
  return count;
}

constexpr size_t kLongCount = 3'000'000;  // fills slices on all devices

/// Two hosts of two processes each. What is long goes by all devices of both, and a part of the communicator does as it did.
void sumOverDevices(int left, int right, const std::vector<std::pair<const char*, const char*>>& variables = {}) {
  ProcessRanks children(4, [&](Self& self) {
    liveWithDevices(self.index() / 2, self.index() < 2 ? left : right);
    for (const auto& [name, value] : variables) setenv(name, value, 1);
    ncclComm_t comm = nullptr;
    ASSERT_EQ(join(self, nullptr, &comm), ok) << ncclGetLastError(nullptr);
    for (const size_t count : {size_t{1}, size_t{1001}, kLongCount}) EXPECT_EQ(sumOnce(comm, 4, count), ok) << ncclGetLastError(comm);
    ncclComm_t part = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, self.index() % 2, -self.index(), &part, nullptr), ok) << ncclGetLastError(comm);
    EXPECT_EQ(sumOnce(part, 2, kLongCount), ok) << ncclGetLastError(part);
    EXPECT_EQ(ncclCommDestroy(part), ok);
    EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  children.expectAllWell();
  const std::string text = children.end(0).text + children.end(1).text;
  for (int device = 0; device < left; ++device) {
    EXPECT_GT(countUses(text, "listens on", device), 0) << device << ": " << text;
    EXPECT_GT(countUses(text, "sends by", device), 0) << device << ": " << text;
  }
  const std::string other = children.end(2).text + children.end(3).text;
  for (int device = 0; device < std::min(left, right); ++device) {
    EXPECT_GT(countUses(other, "listens on", device), 0) << device << ": " << other;
    EXPECT_GT(countUses(other, "sends by", device), 0) << device << ": " << other;
  }
}

TEST(Networks, AllDevicesCarryWhatIsLong) { sumOverDevices(2, 2); }
TEST(Networks, AnOddNumberOfDevicesDoes) { sumOverDevices(3, 3); }
TEST(Networks, HostsWithDifferentDevicesComeToOneLayout) { sumOverDevices(2, 3); }

/// A file that places the devices, and names one that the network does not have: ranks are beside device 1, which is the faster one.
TEST(Networks, ATopologyFileSaysWhereTheDevicesAre) {
  const std::string path = testing::TempDir() + "tutti_networks_" + std::to_string(getpid()) + ".xml";
  std::ofstream(path) << R"(<system version="1">
  <cpu numaid="0" affinity="ffffffff,ffffffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <nic><net name="ghost" dev="2" speed="400000" port="1" guid="0x9" maxconn="64" gdr="0"/></nic>
    <pci busid="0000:1a:00.0" class="0x020000" link_speed="16.0 GT/s PCIe" link_width="16">
      <nic><net name="example1" dev="1" speed="100000" port="1" guid="0x2" maxconn="64" gdr="0"/></nic>
    </pci>
  </cpu>
  <cpu numaid="1" affinity="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:9a:00.0" class="0x020000" link_speed="2.5 GT/s PCIe" link_width="1">
      <nic><net name="example0" dev="0" speed="1000" port="1" guid="0x1" maxconn="64" gdr="0"/></nic>
    </pci>
  </cpu>
</system>)";
  ProcessRanks children(3, [&](Self& self) {
    liveWithDevices(self.index(), 2);
    setenv("NCCL_TOPO_FILE", path.c_str(), 1);
    ncclComm_t comm = nullptr;
    ASSERT_EQ(join(self, nullptr, &comm), ok) << ncclGetLastError(nullptr);
    EXPECT_EQ(sumOnce(comm, 3, kLongCount), ok) << ncclGetLastError(comm);
    EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  children.expectAllWell();
  const std::string& text = children.end(0).text;
  EXPECT_NE(text.find("Channel 00/01 crosses hosts at 0[1]>1[1] 1[1]>2[1] 2[1]>0[1]"), std::string::npos) << text;
  EXPECT_GT(countUses(text, "sends by", 1), 0) << text;
  EXPECT_EQ(countUses(text, "sends by", 0), 0) << text;
  unlink(path.c_str());
}

/// Two hosts of two ranks: dev n of the file is the n-th rank of its host, and the ring crosses by device 1 alone.
TEST(Networks, AGraphFileStatesTheRingsOfHosts) {
  const std::string path = testing::TempDir() + "tutti_networks_" + std::to_string(getpid()) + "_graphs.xml";
  std::ofstream(path) << R"(<graphs version="1"><graph id="0" pattern="4" crossnic="0" nchannels="1" speedintra="1" speedinter="1"
  typeintra="SYS" typeinter="PIX" samechannels="0">
  <channel><net dev="1"/><gpu dev="1"/><gpu dev="0"/><net dev="1"/></channel></graph></graphs>)";
  ProcessRanks children(4, [&](Self& self) {
    liveWithDevices(self.index() / 2, 2);
    setenv("NCCL_GRAPH_FILE", path.c_str(), 1);
    setenv("NCCL_ALGO", "ring", 1);
    ncclComm_t comm = nullptr;
    ASSERT_EQ(join(self, nullptr, &comm), ok) << ncclGetLastError(nullptr);
    EXPECT_EQ(sumOnce(comm, 4, kLongCount), ok) << ncclGetLastError(comm);
    ncclComm_t ofHost = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, self.index() / 2, self.index(), &ofHost, nullptr), ok) << ncclGetLastError(comm);
    EXPECT_EQ(sumOnce(ofHost, 2, 1001), ok) << ncclGetLastError(ofHost);
    EXPECT_EQ(ncclCommDestroy(ofHost), ok);
    EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  children.expectAllWell();
  const std::string text = children.end(0).text + children.end(1).text;
  EXPECT_NE(text.find("crosses hosts at 0[1]>3[1] 2[1]>1[1]"), std::string::npos) << text;
  EXPECT_GT(countUses(text, "sends by", 1), 0) << text;
  EXPECT_EQ(countUses(text, "sends by", 0), 0) << text;
  unlink(path.c_str());
}

int countWords(const std::string& text, const std::string& words) {
  int count = 0;
  for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++count;
  return count;
}

/// A communicator, a part of it with another traffic class, and a second one, as long as they live: a context for each in every process.
TEST(Networks, APluginHasAContextForEachCommunicator) {
  constexpr int kRanks = 2;
  ProcessRanks children(kRanks, [](Self& self) {
    liveWithDevices(self.index(), 1);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.trafficClass = 3;
    ncclComm_t comms[3] = {};
    for (int i = 0; i < 2; ++i)
      ASSERT_EQ(ncclCommInitRankConfig(&comms[i], kRanks, self.id(i), self.index(), i == 0 ? &config : nullptr), ok)
          << ncclGetLastError(nullptr);
    config.trafficClass = 9;
    ASSERT_EQ(ncclCommSplit(comms[0], 0, self.index(), &comms[2], &config), ok) << ncclGetLastError(comms[0]);
    for (ncclComm_t comm : comms) EXPECT_EQ(sumOnce(comm, kRanks, 50'000), ok) << ncclGetLastError(comm);
    for (ncclComm_t comm : {comms[2], comms[0], comms[1]}) EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  children.expectAllWell();
  std::set<std::string> numbers[kRanks];
  for (int child = 0; child < kRanks; ++child) {
    const std::string& text = children.end(child).text;
    EXPECT_EQ(countWords(text, "NET/Example : makes context"), 3) << text;
    EXPECT_EQ(countWords(text, "NET/Example : ends context"), 3) << text;
    const std::string before = "makes context of communicator ";
    for (size_t at = text.find(before); at != std::string::npos; at = text.find(before, at + 1))
      numbers[child].insert(text.substr(at + before.size(), text.find('\n', at) - at - before.size()));
  }
  EXPECT_EQ(numbers[0].size(), 3u) << "no two alike";
  EXPECT_EQ(numbers[0], numbers[1]) << "all ranks of a communicator say the same number";
  for (const char* trafficClass : {"class 3", "class 9", "class -1"})
    EXPECT_TRUE(std::any_of(numbers[0].begin(), numbers[0].end(), [&](const std::string& line) { return line.ends_with(trafficClass); }))
        << trafficClass;
}

/// What GPUs would do with it is no reason to leave nets idle.
TEST(Networks, SettingsOfGpusDoNotMatterToHostDevices) {
  ProcessRanks children(2, [&](Self& self) {
    liveWithDevices(self.index(), 2);
    if (self.index() == 1) setenv("NCCL_P2P_LEVEL", "PIX", 1);
    ncclComm_t comm = nullptr;
    ASSERT_EQ(join(self, nullptr, &comm), ok) << ncclGetLastError(nullptr);
    EXPECT_EQ(sumOnce(comm, 2, kLongCount), ok) << ncclGetLastError(comm);
    EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  children.expectAllWell();
  const std::string& text = children.end(0).text;
  EXPECT_EQ(text.find("have other settings"), std::string::npos) << text;
  EXPECT_GT(countUses(text, "sends by", 1), 0) << text;
}

/// Rings of ranks with other wishes could differ: all follow the order of ranks, and one says why.
TEST(Networks, RanksWithOtherSettingsKeepTheirOrder) {
  ProcessRanks children(2, [&](Self& self) {
    liveWithDevices(self.index(), 2);
    if (self.index() == 1) setenv("NCCL_CROSS_NIC", "0", 1);
    ncclComm_t comm = nullptr;
    ASSERT_EQ(join(self, nullptr, &comm), ok) << ncclGetLastError(nullptr);
    EXPECT_EQ(sumOnce(comm, 2, kLongCount), ok) << ncclGetLastError(comm);
    EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  children.expectAllWell();
  const std::string& text = children.end(0).text;
  EXPECT_NE(text.find("uses device 0 of the network"), std::string::npos) << text;
  EXPECT_NE(text.find("have other settings for topologies"), std::string::npos) << text;
  EXPECT_EQ(countUses(text, "sends by", 1), 0) << text;
  EXPECT_EQ(children.end(1).text.find("have other settings"), std::string::npos) << "rank 0 says it for all";
}

}  // namespace
}  // namespace tutti::faults::networks_test
