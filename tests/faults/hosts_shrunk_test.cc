// Shrinks of communicators between hosts without the process that hears news for its host: the first of it, which hears none any more.
#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "faults/hosts.h"

namespace tutti::faults {
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

}  // namespace
}  // namespace tutti::faults
