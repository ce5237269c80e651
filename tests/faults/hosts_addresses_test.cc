// Hosts with several addresses, of which some lead nowhere; hosts with IPv6 alone. In network namespaces.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "faults/hosts.h"
#include "faults/networks.h"

namespace tutti::faults::hosts_addresses_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
constexpr int kHosts = 2;
using Self = ProcessRanks::Self;

class HostsAddresses : public testing::Test {
 protected:
  void SetUp() override {
    if (!networks_.problem().empty()) GTEST_SKIP() << networks_.problem();
  }
  /// The child's own host; reached at `interfaces`.
  void enter(const Self& self, const char* interfaces) {
    ASSERT_TRUE(networks_.enter(self.index()));
    playNamedHost(self.index());
    setenv("NCCL_SOCKET_IFNAME", interfaces, 1);
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("NCCL_DEBUG_SUBSYS", "INIT,NET", 1);
  }
  /// A second interface on every host, up and running, behind which nobody hears it.
  void addDeadInterfaces() {
    for (int h = 0; h < kHosts; ++h) {
      ASSERT_TRUE(networks_.run(h, "ip link add eth1 type veth peer name deaf"));
      ASSERT_TRUE(networks_.run(h, "ip link set deaf up"));
      ASSERT_TRUE(networks_.run(h, "ip addr add 10.215.0." + std::to_string(h + 1) + "/24 dev eth1"));
      ASSERT_TRUE(networks_.run(h, "ip link set eth1 up"));
    }
  }
  void addV6() {
    for (int h = 0; h < kHosts; ++h)
      ASSERT_TRUE(networks_.run(h, "ip -6 addr add fd00:214::" + std::to_string(h + 1) + "/64 dev eth0 nodad"));
  }
  /// Calls and a split; the seconds that making the communicator and the first call took are noted.
  static void live(Self& self) {
    const Stopwatch watch;
    ncclComm_t comm = joinAll(self);
    EXPECT_EQ(sumOnce(comm, kHosts, 1), ok) << lastError();
    self.note(0, static_cast<int64_t>(watch.seconds() * 1e3));
    for (const size_t count : {0ul, 5000ul, 1000000ul}) EXPECT_EQ(sumOnce(comm, kHosts, count), ok) << lastError();
    ncclComm_t child = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, 0, -self.index(), &child, nullptr), ok) << lastError();
    EXPECT_EQ(sumOnce(child, kHosts, 100000), ok) << lastError();
    EXPECT_EQ(ncclCommDestroy(child), ok);
    EXPECT_EQ(ncclCommDestroy(comm), ok);
  }

  const Networks networks_{kHosts};
};

/// Whether a line of the log has both.
bool hasLine(const std::string& text, const std::string& one, const std::string& other) {
  for (size_t at = text.find(one); at != std::string::npos; at = text.find(one, at + 1)) {
    const size_t begin = text.rfind('\n', at) + 1;
    if (text.substr(begin, text.find('\n', at) - begin).find(other) != std::string::npos) return true;
  }
  return false;
}

/// Dead interfaces first, and last: what works is found, and the log says what became of the others.
TEST_F(HostsAddresses, OneThatWorksIsFoundAmongDeadOnes) {
  ASSERT_NO_FATAL_FAILURE(addDeadInterfaces());
  for (const bool deadFirst : {true, false}) {
    ProcessRanks children(kHosts, [&](Self& self) {
      enter(self, deadFirst ? "eth1,eth0" : "eth0,eth1");
      live(self);
    });
    children.expectAllWell();
    EXPECT_LT(children.number(0, 0), 5000) << deadFirst;
    EXPECT_LT(children.number(1, 0), 5000) << deadFirst;
    const std::string own = children.end(0).text;
    EXPECT_TRUE(hasLine(own, "interface  eth0", "10.214.0.1")) << own;
    EXPECT_TRUE(hasLine(own, "interface  lo", "not chosen: NCCL_SOCKET_IFNAME does not name it")) << own;
    const std::string refusal =
        deadFirst ? "not chosen: had not answered when another one did" : "not chosen: not tried: another one answered";
    EXPECT_TRUE(hasLine(own, "NET/Socket : address  10.215.0.2:", refusal)) << own;
    EXPECT_TRUE(hasLine(own, "NET/Socket : address  10.214.0.2:", "chosen")) << own;
    const std::string other = children.end(1).text;  // which dials the root
    EXPECT_TRUE(hasLine(other, "Bootstrap: address  10.215.0.1:", refusal)) << other;
    EXPECT_TRUE(hasLine(other, "Bootstrap: address  10.214.0.1:", "of the root of the unique id  chosen")) << other;
  }
}

/// Bridges of containers. With so few ports the processes of both hosts listen at the same one in some of the rounds; each round has
/// hosts of its own, because ports of connections that have ended are not free for a minute.
TEST(HostsBridges, AnAddressThatAllHostsHaveLeadsNobodyToHimself) {
  for (int i = 0; i < 12; ++i) {
    const Networks networks(kHosts);
    if (!networks.problem().empty()) GTEST_SKIP() << networks.problem();
    for (int h = 0; h < kHosts; ++h) {
      ASSERT_TRUE(networks.run(h, "ip link add br0 type veth peer name inside"));
      ASSERT_TRUE(networks.run(h, "ip link set inside up"));
      ASSERT_TRUE(networks.run(h, "ip addr add 172.30.0.1/16 dev br0"));
      ASSERT_TRUE(networks.run(h, "ip link set br0 up"));
      ASSERT_TRUE(networks.run(h, "sysctl -qw net.ipv4.ip_local_port_range='40000 40015'"));
    }
    ProcessRanks children(kHosts, [&](Self& self) {
      ASSERT_TRUE(networks.enter(self.index()));
      playNamedHost(self.index());
      setenv("NCCL_SOCKET_IFNAME", "br,eth", 1);
      setenv("TUTTI_INIT_TIMEOUT_MS", "20000", 1);
      ncclComm_t comm = joinAll(self);
      EXPECT_EQ(sumOnce(comm, kHosts, 5000), ok) << lastError();
      EXPECT_EQ(ncclCommDestroy(comm), ok);
    });
    children.expectAllWell();
  }
}

TEST_F(HostsAddresses, V6AloneWhereItIsAskedFor) {
  ASSERT_NO_FATAL_FAILURE(addV6());
  for (const char* family : {"AF_INET6", "AF_INET"}) {
    ProcessRanks children(kHosts, [&](Self& self) {
      enter(self, "=eth0");
      setenv("NCCL_SOCKET_FAMILY", family, 1);
      live(self);
    });
    children.expectAllWell();
    const bool isV6 = std::string(family) == "AF_INET6";
    const std::string text = children.end(0).text;
    EXPECT_TRUE(
        hasLine(text, isV6 ? "Bootstrap: interface  eth0             [fd00:214::1] " : "Bootstrap: interface  eth0             10.214.0.1 ",
                "  chosen"))
        << text;
    EXPECT_TRUE(hasLine(text, "NCCL_SOCKET_FAMILY asks for the other IP version", isV6 ? "10.214.0.1" : "[fd00:214::1]")) << text;
  }
}

TEST_F(HostsAddresses, HostsWithoutV4) {
  ASSERT_NO_FATAL_FAILURE(addV6());
  for (int h = 0; h < kHosts; ++h) ASSERT_TRUE(networks_.run(h, "ip addr del 10.214.0." + std::to_string(h + 1) + "/24 dev eth0"));
  ProcessRanks children(kHosts, [&](Self& self) {
    enter(self, "=eth0");
    live(self);
  });
  children.expectAllWell();
  EXPECT_TRUE(hasLine(children.end(0).text, "interface  eth0", "[fd00:214::1]")) << children.end(0).text;
}

/// Nothing of the id is handed over: every process makes it from the variable.
TEST_F(HostsAddresses, NcclCommIdOverV6) {
  ASSERT_NO_FATAL_FAILURE(addV6());
  for (const char* secret : {"", "of the job"}) {
    ProcessRanks children(kHosts, [&](Self& self) {
      enter(self, "=eth0");
      setenv("NCCL_COMM_ID", "[fd00:214::1]:23461", 1);
      if (*secret != 0) setenv("TUTTI_JOB_SECRET", secret, 1);
      ncclUniqueId id;
      ASSERT_EQ(ncclGetUniqueId(&id), ok) << lastError();
      ncclUniqueId again;
      ASSERT_EQ(ncclGetUniqueId(&again), ok) << lastError();
      ncclComm_t comm = nullptr;
      ASSERT_EQ(ncclCommInitRank(&comm, kHosts, id, self.index()), ok) << lastError();
      EXPECT_EQ(sumOnce(comm, kHosts, 5000), ok) << lastError();
      EXPECT_EQ(ncclCommDestroy(comm), ok);
    });
    children.expectAllWell();
    const std::string text = children.end(0).text;
    const size_t said = text.find("connections are not authenticated");
    EXPECT_EQ(said != std::string::npos, *secret == 0) << text;
    if (said != std::string::npos) {
      EXPECT_EQ(text.find("connections are not authenticated", said + 1), std::string::npos) << "once: " << text;
    }
  }
}

}  // namespace
}  // namespace tutti::faults::hosts_addresses_test
