// Ranks in network namespaces of their own: real interfaces, which go down, or are slow.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "faults/hosts.h"
#include "faults/networks.h"

namespace tutti::faults::hosts_networks_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
using Self = ProcessRanks::Self;

class HostsNetworks : public testing::Test {
 protected:
  static constexpr int kHosts = 3;
  void SetUp() override {
    if (!networks_.problem().empty()) GTEST_SKIP() << networks_.problem();
  }
  /// The child's own host; reached at eth0.
  void enter(const Self& self) {
    ASSERT_TRUE(networks_.enter(self.index()));
    playNamedHost(self.index());
    setenv("NCCL_SOCKET_IFNAME", "=eth0", 1);
  }

  const Networks networks_{kHosts};
};

TEST_F(HostsNetworks, CallsAndSplitsWork) {
  ProcessRanks children(kHosts, [&](Self& self) {
    enter(self);
    ncclComm_t comm = joinAll(self);
    for (const size_t count : {0ul, 1ul, 5000ul, 1000000ul}) EXPECT_EQ(sumOnce(comm, kHosts, count), ok) << lastError();
    ncclComm_t child = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, self.index() / 2, self.index(), &child, nullptr), ok) << lastError();
    EXPECT_EQ(sumOnce(child, self.index() == 2 ? 1 : 2, 100000), ok) << lastError();
    EXPECT_EQ(ncclCommDestroy(child), ok);
    EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  children.expectAllWell();
}

/// Nobody can tell a host that cannot be reached from one that is slow: the deadline ends the calls, and the others go on without it.
TEST_F(HostsNetworks, AnInterfaceGoesDown) {
  for (const size_t count : {100ul, 1000000ul}) {
    ProcessRanks children(kHosts, [&](Self& self) {
      enter(self);
      ncclComm_t comm = joinAll(self);
      EXPECT_EQ(sumOnce(comm, kHosts), ok) << lastError();
      EXPECT_EQ(tuttiCommSetTimeout(comm, 700), ok);  // only now: processes may come late
      self.meet(1);
      const ncclResult_t result = sumUntilError(comm, count);
      self.reach(2);
      EXPECT_EQ(result, ncclRemoteError) << lastError();
      EXPECT_TRUE(mentions(lastError(), {"AllReduce", "rank"}));
      EXPECT_TRUE(mentions(verdictOf(comm), {"deadline of 700 ms"}));
      if (self.index() != 2) {
        EXPECT_TRUE(
            mentions(verdictOf(comm), {R"("suspects":[{"rank":2,"host":")" + nameOfHost(2) + R"(","link":"Socket )", "10.214.0.3"}));
        int gone = 2;
        ncclComm_t child = nullptr;
        ASSERT_EQ(ncclCommShrink(comm, &gone, 1, &child, nullptr, NCCL_SHRINK_ABORT), ok) << lastError();
        EXPECT_EQ(sumOnce(child, 2, 100000), ok) << lastError();
        EXPECT_EQ(ncclCommDestroy(child), ok);
      }
      abortPromptly(comm);
    });
    ASSERT_TRUE(children.awaitStageOfAll(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    const Stopwatch watch;
    ASSERT_TRUE(networks_.run(2, "ip link set eth0 down"));
    ASSERT_TRUE(children.awaitStageOfAll(2));
    EXPECT_LT(watch.seconds(), 0.7 + 2 * kPromptSeconds);
    children.expectAllWell({}, 20);
    ASSERT_TRUE(networks_.run(2, "ip link set eth0 up") && networks_.awaitUp(2));
    if (testing::Test::HasFailure()) return;
  }
}

/// Without a deadline the kernels' probes end the calls: those of the others, and those of who is cut off. Nobody is said to have ended for
/// sure.
TEST_F(HostsNetworks, AnInterfaceThatStaysDownEndsTheCallsWithoutADeadline) {
  ProcessRanks children(kHosts, [&](Self& self) {
    enter(self);
    ncclComm_t comm = joinAll(self);
    EXPECT_EQ(sumOnce(comm, kHosts), ok) << lastError();
    self.meet(1);
    EXPECT_EQ(sumUntilError(comm, 100), ncclRemoteError) << lastError();
    self.reach(2);
    EXPECT_TRUE(mentions(lastError(), {"has ended, or cannot be reached", "does not answer"}));
    if (self.index() != 2) {
      EXPECT_TRUE(mentions(lastError(), {nameOfHost(2), "rank 2"}));
    }
    abortPromptly(comm);
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const Stopwatch watch;
  ASSERT_TRUE(networks_.run(2, "ip link set eth0 down"));
  std::this_thread::sleep_for(std::chrono::seconds(10));  // awaitStageOfAll() has less patience
  ASSERT_TRUE(children.awaitStageOfAll(2));
  EXPECT_LT(watch.seconds(), 29);
  children.expectAllWell({}, 20);
  ASSERT_TRUE(networks_.run(2, "ip link set eth0 up"));
}

/// It comes back before the deadline: nothing has happened.
TEST_F(HostsNetworks, AnInterfaceGoesDownForAMoment) {
  ProcessRanks children(kHosts, [&](Self& self) {
    enter(self);
    setenv("TUTTI_TIMEOUT_MS", "15000", 1);
    ncclComm_t comm = joinAll(self);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(sumOnce(comm, kHosts, 20000), ok) << lastError();
    self.meet(1);
    self.awaitAllowed(1);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(sumOnce(comm, kHosts, 20000), ok) << lastError();
    EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  ASSERT_TRUE(networks_.run(1, "ip link set eth0 down"));
  children.allow(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ASSERT_TRUE(networks_.run(1, "ip link set eth0 up"));
  children.expectAllWell({}, 20);
}

/// Slow is not broken: results are right, and a deadline that is longer than any standstill does not strike.
TEST_F(HostsNetworks, ASlowInterfaceOnlySlows) {
  const bool isDelayed = networks_.run(1, "tc qdisc add dev eth0 root netem delay 5ms");
  const bool isSlow = isDelayed || networks_.run(1, "tc qdisc add dev eth0 root tbf rate 40mbit burst 16kbit latency 1s");
  if (!isSlow) GTEST_SKIP() << "tc cannot delay or limit here";
  double seconds = 0;
  ProcessRanks children(kHosts, [&](Self& self) {
    enter(self);
    setenv("TUTTI_TIMEOUT_MS", "5000", 1);
    ncclComm_t comm = joinAll(self);
    const Stopwatch watch;
    for (const size_t count : {1ul, 1000ul, 500000ul}) EXPECT_EQ(sumOnce(comm, kHosts, count), ok) << lastError();
    self.note(0, static_cast<int64_t>(watch.seconds() * 1e3));
    EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  children.expectAllWell();
  seconds = static_cast<double>(children.number(0, 0)) * 1e-3;
  EXPECT_GT(seconds, isDelayed ? 0.01 : 0.2) << "it was not slow at all";
}

}  // namespace
}  // namespace tutti::faults::hosts_networks_test
