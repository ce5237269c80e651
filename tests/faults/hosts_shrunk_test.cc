// Shrinks of communicators between hosts without the process that hears news for its host: the first of it, which hears none any more.
#include <gtest/gtest.h>
#include <signal.h>

#include <thread>
#include <vector>

#include "faults/hosts.h"

namespace tutti::faults::hosts_shrunk_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
constexpr int kRanks = 4;
constexpr int kFirst = 2;  // of its host
using Self = ProcessRanks::Self;

int hostOf(int rank) { return rank / 2; }

/// The three others have a communicator that works.
void goOnWithoutTheFirst(ncclComm_t comm) {
  int dead = kFirst;
  ncclComm_t child = nullptr;
  const Stopwatch watch;
  ASSERT_EQ(ncclCommShrink(comm, &dead, 1, &child, nullptr, NCCL_SHRINK_ABORT), ok) << lastError();
  EXPECT_EQ(sumOnce(child, kRanks - 1), ok) << lastError();
  EXPECT_LT(watch.seconds(), kPromptSeconds);
  EXPECT_EQ(ncclCommDestroy(child), ok) << lastError();
}

/// It stands still, as a process does in a debugger, or one whose GPU hangs. Nobody will ever know more of it.
TEST(HostsShrunk, WithoutAStoppedProcess) {
  ProcessRanks children(kRanks, [](Self& self) {
    playHost(hostOf(self.index()));
    ncclComm_t comm = joinAll(self);
    EXPECT_EQ(sumOnce(comm, kRanks), ok);
    self.meet(1);
    self.awaitAllowed(1);
    if (self.index() != kFirst) goOnWithoutTheFirst(comm);
    self.reach(2);
    abortPromptly(comm);
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  children.signal(kFirst, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  children.allow(1);
  const bool isDone = children.awaitStageOfAll(2, {kFirst});
  children.signal(kFirst, SIGCONT);
  EXPECT_TRUE(isDone);
  children.expectAllWell({}, 10);
}

/// The communicator has failed for a first death; another rank dies before it comes to the shrink that is to go on without the first.
void dieBeforeComing(const std::vector<int>& hosts) {
  constexpr int kDead = 3;
  constexpr int kLate = 2;
  ProcessRanks children(kRanks, [&](Self& self) {
    playHost(hosts[static_cast<size_t>(self.index())]);
    ncclComm_t comm = joinAll(self);
    EXPECT_EQ(sumOnce(comm, kRanks), ok);
    self.meet(1);
    if (self.index() == kDead) self.awaitAllowed(99);
    EXPECT_EQ(sumUntilError(comm, 1000), ncclRemoteError);
    self.meet(2, {kDead});
    if (self.index() == kLate) self.awaitAllowed(99);
    if (self.index() == 0) self.awaitAllowed(1);  // the other is there before the death, this one comes after it
    int dead = kDead;
    ncclComm_t child = nullptr;
    EXPECT_EQ(ncclCommShrink(comm, &dead, 1, &child, nullptr, NCCL_SHRINK_ABORT), ncclRemoteError);
    EXPECT_TRUE(mentions(lastError(), {"rank 2", "waited for it in ncclCommShrink"}) || mentions(lastError(), {"rank 1: "})) << lastError();
    self.note(1, 1);
    abortPromptly(comm);
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  children.kill(kDead);
  ASSERT_TRUE(children.awaitStageOfAll(2, {kDead}));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  children.kill(kLate);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  children.allow(1);
  children.expectAllWell({kDead, kLate}, 2 + 2 * kPromptSeconds);
}

TEST(HostsShrunk, AMemberThatDiedBeforeItCame) { dieBeforeComing({0, 1, 2, 3}); }
TEST(HostsShrunk, AMemberOfAnotherHostWithTwoThatDied) { dieBeforeComing({0, 0, 1, 1}); }

/// Both come at the same moment, and neither has heard of the other then.
TEST(HostsShrunk, ListsThatDifferBetweenHosts) {
  for (int round = 0; round < 8; ++round) {
    ProcessRanks children(kRanks, [](Self& self) {
      playHost(hostOf(self.index()));
      ncclComm_t comm = joinAll(self);
      EXPECT_EQ(sumOnce(comm, kRanks), ok);
      self.meet(1);
      if (self.index() != kFirst) {
        std::vector<int> excluded = {kFirst};
        if (self.index() == 3) excluded = {1, kFirst};
        ncclComm_t child = nullptr;
        const ncclResult_t result =
            ncclCommShrink(comm, excluded.data(), static_cast<int>(excluded.size()), &child, nullptr, NCCL_SHRINK_ABORT);
        EXPECT_TRUE(result == ncclInvalidUsage || result == ncclRemoteError) << result;
        EXPECT_TRUE(mentions(lastError(), {"rank"})) << lastError();
      }
      self.reach(2);
      abortPromptly(comm);
    });
    ASSERT_TRUE(children.awaitStageOfAll(2));
    children.expectAllWell({}, 2 + 2 * kPromptSeconds);
    if (testing::Test::HasFailure()) FAIL() << "round " << round;
  }
}

}  // namespace
}  // namespace tutti::faults::hosts_shrunk_test
