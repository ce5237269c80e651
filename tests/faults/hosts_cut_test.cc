// A host whose interface goes down while communicators are made or divided: the others give up in time and say whom they miss, and so does
// whoever is cut off. In network namespaces.
#include <gtest/gtest.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "faults/hosts.h"
#include "faults/networks.h"

namespace tutti::faults::hosts_cut_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
constexpr int kHosts = 3;  // of each communicator
constexpr int64_t kTimeoutMs = 1000;
using Self = ProcessRanks::Self;

/// When it is cut off: when it has begun, before the others begin; when it and another one wait for a third, which does not come; so many
/// microseconds after all have begun.
constexpr int kBeforeTheOthers = -2, kWhileOneIsMissing = -1;
struct Cut {
  bool inSplit;
  int host;
  int microseconds;

  bool isMissing(int rank) const { return microseconds == kWhileOneIsMissing && rank == (host + 2) % kHosts; }
  bool isWaiting() const { return microseconds < 0; }
};

/// The calling process's own, from one moment to the next.
void takeDownEth0() {
  const int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "eth0");
  EXPECT_EQ(ioctl(any, SIOCSIFFLAGS, &request), 0);
  close(any);
}

/// How a rank's calls have ended.
struct Ending {
  ncclResult_t result = ok;
  std::string why;
};

/// All-reduces until one fails, or `once`; then its end: an abort would be what the others hear that have not ended a good call yet.
Ending use(ncclComm_t comm, int64_t timeoutMs, bool once = false) {
  EXPECT_EQ(tuttiCommSetTimeout(comm, timeoutMs), ok);
  Ending ending{once ? sumOnce(comm, kHosts) : sumUntilError(comm, 100), lastError()};
  if (ending.result == ok) {
    EXPECT_EQ(ncclCommDestroy(comm), ok) << lastError();
  } else {
    abortPromptly(comm);
  }
  return ending;
}

Ending makeAndUse(const ncclUniqueId& id, int rank, int64_t timeoutMs) {
  ncclComm_t comm = nullptr;
  const ncclResult_t result = ncclCommInitRank(&comm, kHosts, id, rank);
  return result == ok ? use(comm, timeoutMs) : Ending{result, lastError()};
}

/// Again and again, unless somebody waits in the first already.
Ending divideAndUse(ncclComm_t comm, bool isRepeated, int64_t timeoutMs) {
  Ending ending;
  while (ending.result == ok) {
    ncclComm_t child = nullptr;
    const ncclResult_t result = ncclCommSplit(comm, 0, 0, &child, nullptr);
    ending = result == ok ? use(child, timeoutMs, isRepeated) : Ending{result, lastError()};
  }
  return ending;
}

/// What those say that are not cut off. Of a root that nothing was heard of, the rank is not known.
testing::AssertionResult saysWhoIsCutOff(const std::string& text, int host, int64_t process) {
  const auto saysSo = mentions(text, {"the root at", "process " + std::to_string(process) + " has not answered"});
  return saysSo ? saysSo : namesRank(text, host);
}

/// Each cut in a communicator of its own, all at once. `timeoutMs`: 0 for no deadline.
void playCuts(const std::vector<Cut>& cuts, int64_t timeoutMs, double seconds) {
  const int processes = kHosts * static_cast<int>(cuts.size());
  const Networks networks(processes);
  if (!networks.problem().empty()) GTEST_SKIP() << networks.problem();
  ProcessRanks children(processes, [&](Self& self) {
    ASSERT_TRUE(networks.enter(self.index()));
    playNamedHost(self.index());
    setenv("NCCL_SOCKET_IFNAME", "=eth0", 1);
    const int group = self.index() / kHosts;
    const int rank = self.index() % kHosts;
    const int first = group * kHosts;
    const Cut& cut = cuts[static_cast<size_t>(group)];
    if (!cut.inSplit) setenv("TUTTI_TIMEOUT_MS", std::to_string(timeoutMs).c_str(), 1);
    self.note(0, getpid());
    const ncclUniqueId id = self.id(group, first);
    ncclComm_t comm = nullptr;
    if (cut.inSplit) {
      ASSERT_EQ(ncclCommInitRank(&comm, kHosts, id, rank), ok) << lastError();
      EXPECT_EQ(sumOnce(comm, kHosts), ok) << lastError();
      EXPECT_EQ(tuttiCommSetTimeout(comm, timeoutMs), ok);
    }
    self.meet(1);
    std::thread cutter;
    if (rank == cut.host) {
      cutter = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(cut.isWaiting() ? 300'000 : cut.microseconds));
        takeDownEth0();
        self.reach(2);
      });
    } else if (cut.microseconds == kBeforeTheOthers) {
      self.awaitStage(first + cut.host, 2);
    }
    if (!cut.isMissing(rank)) {
      const Stopwatch watch;
      const auto [result, why] = cut.inSplit ? divideAndUse(comm, !cut.isWaiting(), timeoutMs) : makeAndUse(id, rank, timeoutMs);
      EXPECT_LT(watch.seconds(), seconds) << result << ": " << why;
      if (rank == cut.host) {
        cutter.join();
        EXPECT_TRUE(result == ncclRemoteError || mentions(why, {"no network interface can be used"})) << result << ": " << why;
      } else {
        EXPECT_EQ(result, ncclRemoteError) << why;
        EXPECT_TRUE(saysWhoIsCutOff(why, cut.host, self.number(first + cut.host, 0)));
      }
    }
    self.reach(3);
    self.awaitAllowed(1);
    if (comm != nullptr) abortPromptly(comm);
  });
  const Stopwatch watch;
  EXPECT_TRUE(children.awaitStageOfAll(1));
  while (watch.seconds() < seconds - 15) std::this_thread::sleep_for(std::chrono::milliseconds(100));  // awaitStage() has less patience
  EXPECT_TRUE(children.awaitStageOfAll(3));
  for (size_t group = 0; group < cuts.size(); ++group)
    EXPECT_TRUE(networks.run(kHosts * static_cast<int>(group) + cuts[group].host, "ip link set eth0 up"));
  children.allow(1);
  children.expectAllWell();
}

/// In TUTTI_TIMEOUT_MS, or a second one where the first call has succeeded.
void playCuts(const std::vector<Cut>& cuts) { playCuts(cuts, kTimeoutMs, 2e-3 * kTimeoutMs + 2 * kPromptSeconds); }
/// The kernels' probes notice it, after 25 s.
void playCutsWithoutADeadline(const std::vector<Cut>& cuts) {
  if (std::getenv("TUTTI_TEST_FULL") != nullptr) playCuts(cuts, 0, 29);
}

TEST(HostsCut, DuringInitIsNamed) {
  playCuts({{false, 2, kBeforeTheOthers}, {false, 0, kBeforeTheOthers}, {false, 2, 8000}, {false, 1, 20000}});
  playCutsWithoutADeadline({{false, 2, kBeforeTheOthers}, {false, 0, kWhileOneIsMissing}, {false, 1, kWhileOneIsMissing}});
}

TEST(HostsCut, DuringSplitsIsNamed) {
  playCuts({{true, 2, kBeforeTheOthers}, {true, 0, kBeforeTheOthers}, {true, 2, 2000}, {true, 1, 6000}});
  playCutsWithoutADeadline({{true, 0, kBeforeTheOthers}, {true, 2, kWhileOneIsMissing}, {true, 1, 2000}});
}

}  // namespace
}  // namespace tutti::faults::hosts_cut_test
