// Ranks are processes, and one of them dies or stands still: the others are told at once, by name, and can go on without it.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "faults/hosts.h"
#include "faults/process_ranks.h"

namespace tutti::faults::processes_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
using Self = ProcessRanks::Self;

int64_t nowNs() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

/// What a wait has returned that another rank's death ended: who, where, and what it did last.
void expectToldOf(ncclResult_t result, int rank, int64_t pid, const char* operation) {
  EXPECT_EQ(result, ncclRemoteError) << lastError();
  const std::string name = "rank " + std::to_string(rank);
  EXPECT_TRUE(mentions(lastError(), {name, std::to_string(pid) + " on " + hostName(), "the last call of " + name + " was ", operation}));
}

/// The survivors make a communicator without the dead rank, and it works.
void shrinkWithout(ncclComm_t comm, int dead, int ranks) {
  ncclComm_t child = nullptr;
  const Stopwatch watch;
  ASSERT_EQ(ncclCommShrink(comm, &dead, 1, &child, nullptr, NCCL_SHRINK_ABORT), ok) << lastError();
  EXPECT_LT(watch.seconds(), 2 * kPromptSeconds);
  int count = 0;
  EXPECT_EQ(ncclCommCount(child, &count), ok);
  EXPECT_EQ(count, ranks - 1);
  for (const size_t size : {1ul, 1000ul, 300000ul}) EXPECT_EQ(sumOnce(child, ranks - 1, size), ok) << lastError();
  EXPECT_EQ(ncclCommDestroy(child), ok) << lastError();
}

/// `doomed` is killed when all are in the middle of all-reduces of `count` elements.
void killInTheMiddle(int ranks, int doomed, size_t count) {
  int64_t death = 0;
  ProcessRanks children(ranks, [=](Self& self) {
    ncclComm_t comm = joinAll(self);
    EXPECT_EQ(sumOnce(comm, ranks), ok);
    self.note(0, getpid());
    self.meet(1);
    const ncclResult_t result = sumUntilError(comm, count);
    self.awaitAllowed(1);
    expectToldOf(result, doomed, self.number(doomed, 0), "AllReduce");
    EXPECT_TRUE(mentions(verdictOf(comm), {"rank " + std::to_string(doomed), "process"}));
    self.note(1, nowNs());
    shrinkWithout(comm, doomed, ranks);
    abortPromptly(comm);
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  death = nowNs();
  children.kill(doomed);
  children.allow(1);
  children.expectAllWell({doomed});
  for (int child = 0; child < ranks; ++child) {
    if (child != doomed) {
      EXPECT_LT(static_cast<double>(children.number(child, 1) - death) * 1e-9, kPromptSeconds) << "child " << child;
    }
  }
}

TEST(Killed, InTheMiddleOfLargeAllReduces) { killInTheMiddle(3, 1, 2000000); }
TEST(Killed, InTheMiddleOfSmallAllReduces) { killInTheMiddle(4, 3, 10); }
TEST(Killed, TheProcessThatMadeTheId) { killInTheMiddle(3, 0, 100000); }
TEST(Killed, OneOfTwo) {
  int64_t death = 0;
  ProcessRanks children(2, [&](Self& self) {
    ncclComm_t comm = joinAll(self);
    self.note(0, getpid());
    self.meet(1);
    expectToldOf(sumUntilError(comm, 50000), 1, self.number(1, 0), "AllReduce");
    self.note(1, nowNs());
    shrinkWithout(comm, 1, 2);
    abortPromptly(comm);
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  death = nowNs();
  children.kill(1);
  children.expectAllWell({1});
  EXPECT_LT(static_cast<double>(children.number(0, 1) - death) * 1e-9, kPromptSeconds);
}

// Nobody waits for anything: the state says it, and so does the next call.
TEST(Killed, WhileIdle) {
  ProcessRanks children(3, [](Self& self) {
    ncclComm_t comm = joinAll(self);
    EXPECT_EQ(sumOnce(comm, 3), ok);
    self.note(0, getpid());
    self.meet(1);
    self.awaitAllowed(1);
    const Stopwatch watch;
    ncclResult_t state = ok;
    while (state == ok && watch.seconds() < 2 * kPromptSeconds) EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ok);
    EXPECT_LT(watch.seconds(), kPromptSeconds);
    EXPECT_EQ(state, ncclRemoteError);
    EXPECT_TRUE(mentions(verdictOf(comm), {"rank 2", "process", std::to_string(self.number(2, 0))}));
    int x = 0;
    expectToldOf(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, comm, nullptr), 2, self.number(2, 0), "AllReduce");
    EXPECT_EQ(ncclCommDestroy(comm), ok) << lastError();
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  children.kill(2);
  children.allow(1);
  children.expectAllWell({2});
}

// The others wait in a split for the one that dies.
TEST(Killed, BeforeItComesToASplit) {
  ProcessRanks children(3, [](Self& self) {
    ncclComm_t comm = joinAll(self);
    EXPECT_EQ(sumOnce(comm, 3), ok);
    self.note(0, getpid());
    self.reach(1);
    if (self.index() == 1) self.awaitAllowed(99);
    ncclComm_t child = nullptr;
    const ncclResult_t result = ncclCommSplit(comm, 0, 0, &child, nullptr);
    expectToldOf(result, 1, self.number(1, 0), "");
    EXPECT_EQ(child, nullptr);
    shrinkWithout(comm, 1, 3);
    EXPECT_EQ(ncclCommDestroy(comm), ok) << lastError();
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  children.kill(1);
  children.expectAllWell({1}, 10);
}

// It dies somewhere in the middle of splits, wherever that is: whatever comes of them, nobody waits for ever.
TEST(Killed, InTheMiddleOfSplits) {
  for (int round = 0; round < 6; ++round) {
    ProcessRanks children(3, [](Self& self) {
      ncclComm_t comm = joinAll(self);
      self.meet(1);
      ncclResult_t result = ok;
      for (int i = 0; result == ok; ++i) {
        ncclComm_t child = nullptr;
        result = ncclCommSplit(comm, i % 2, 0, &child, nullptr);
        if (result == ok) result = sumOnce(child, 3, 10);
        if (child != nullptr) {
          EXPECT_EQ(ncclCommDestroy(child), ok) << lastError();
        }
      }
      EXPECT_EQ(result, ncclRemoteError) << lastError();
      EXPECT_TRUE(mentions(lastError(), {"rank"}));
      shrinkWithout(comm, 2, 3);
      abortPromptly(comm);
    });
    ASSERT_TRUE(children.awaitStageOfAll(1));
    std::this_thread::sleep_for(std::chrono::microseconds(3000 + 1700 * round));
    children.kill(2);
    children.expectAllWell({2}, 10);
    if (testing::Test::HasFailure()) return;
  }
}

// A shrink that the last survivors come to when one of those who were to survive has died in it.
TEST(Killed, InTheMiddleOfAShrink) {
  ProcessRanks children(4, [](Self& self) {
    ncclComm_t comm = joinAll(self);
    self.meet(1);
    if (self.index() == 3) self.awaitAllowed(99);
    EXPECT_EQ(sumUntilError(comm, 1000), ncclRemoteError);
    int dead = 3;
    ncclComm_t child = nullptr;
    self.reach(2);
    if (self.index() == 0) self.awaitAllowed(2);
    ncclResult_t result = ncclCommShrink(comm, &dead, 1, &child, nullptr, NCCL_SHRINK_ABORT);
    if (result == ok) result = sumUntilError(child, 1000);  // it may have been made before anybody knew
    EXPECT_EQ(result, ncclRemoteError) << lastError();
    EXPECT_TRUE(mentions(lastError(), {"rank"}));
    if (child != nullptr) abortPromptly(child);
    abortPromptly(comm);
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  children.kill(3);
  ASSERT_TRUE(children.awaitStageOfAll(2, {3}));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  children.kill(2);  // it has come to the shrink and waits there
  children.allow(2);
  children.expectAllWell({2, 3}, 10);
}

// During ncclCommInitRank, at any moment of it: the others get an error, at once where they had heard of it. (No deadline: InitDeaths.)
TEST(Killed, DuringInit) {
  for (int round = 0; round < 12; ++round) {
    ProcessRanks children(3, [](Self& self) {
      setenv("TUTTI_TIMEOUT_MS", "1000", 1);  // for a rank that never came, which nobody can tell from one that is late
      const ncclUniqueId id = self.id();
      ncclComm_t comm = nullptr;
      self.reach(1);
      ncclResult_t result = ncclCommInitRank(&comm, 3, id, self.index());
      if (result == ok) result = sumUntilError(comm, 10);
      EXPECT_EQ(result, ncclRemoteError) << lastError();
      // The root closes its door when it gives up: who has not been told yet says so.
      EXPECT_TRUE(mentions(lastError(), {"rank"}) || mentions(lastError(), {"root", "went away"})) << lastError();
      self.meet(2, {1});  // the process of the root, gone early, would be the news
      if (comm != nullptr) abortPromptly(comm);
    });
    ASSERT_TRUE(children.awaitStage(1, 1));
    std::this_thread::sleep_for(std::chrono::microseconds(1500 * round));
    children.kill(1);
    children.expectAllWell({1}, 10);
    if (testing::Test::HasFailure()) FAIL() << "round " << round;
  }
}

TEST(Stopped, TheOthersGiveUpAtTheDeadlineAndItHearsOfItLater) {
  ProcessRanks children(3, [](Self& self) {
    ncclComm_t comm = joinAll(self);
    EXPECT_EQ(sumOnce(comm, 3), ok);
    EXPECT_EQ(tuttiCommSetTimeout(comm, 300), ok);  // only now: processes may come late
    self.meet(1);
    const bool isStopped = self.index() == 1;
    const ncclResult_t result = sumUntilError(comm, 10000);
    EXPECT_EQ(result, ncclRemoteError) << lastError();
    const std::string verdict = verdictOf(comm);
    EXPECT_TRUE(mentions(verdict, {"\"kind\":\"deadline\"", "300 ms", "AllReduce"}));
    if (!isStopped) {
      EXPECT_TRUE(mentions(verdict, {"of rank 1"}));
    }
    self.reach(2);
    abortPromptly(comm);
    self.reach(3);
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Stopwatch watch;
  children.signal(1, SIGSTOP);
  ASSERT_TRUE(children.awaitStage(0, 2));
  ASSERT_TRUE(children.awaitStage(2, 2));
  EXPECT_LT(watch.seconds(), 0.3 + kPromptSeconds);
  ASSERT_TRUE(children.awaitStage(0, 3));
  ASSERT_TRUE(children.awaitStage(2, 3));
  children.signal(1, SIGCONT);
  children.expectAllWell();
}

}  // namespace
}  // namespace tutti::faults::processes_test
