// Ranks on several hosts, of which some die, stand still, or call something else: the others are told at once, by name, and can go on.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "faults/hosts.h"

namespace tutti::faults::hosts_lost_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
using Self = ProcessRanks::Self;
using Ints = std::vector<int>;

int64_t nowNs() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

/// The second time there is nothing left to do.
void abortTwice(ncclComm_t comm) {
  abortPromptly(comm);
  EXPECT_EQ(ncclCommAbort(comm), ok);
  EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
  EXPECT_TRUE(mentions(lastError(), {"destroyed or aborted"}));
}

// ---- Killed ---------------------------------------------------------------------------------------------------------------

/// The survivors make a communicator without the dead ranks, and it works.
void shrinkWithout(ncclComm_t comm, Ints dead, int ranks) {
  ncclComm_t child = nullptr;
  const Stopwatch watch;
  const int rest = ranks - static_cast<int>(dead.size());
  ASSERT_EQ(ncclCommShrink(comm, dead.data(), static_cast<int>(dead.size()), &child, nullptr, NCCL_SHRINK_ABORT), ok) << lastError();
  EXPECT_LT(watch.seconds(), 2 * kPromptSeconds);
  for (const size_t size : {1ul, 1000ul, 300000ul}) EXPECT_EQ(sumOnce(child, rest, size), ok) << lastError();
  EXPECT_EQ(ncclCommDestroy(child), ok) << lastError();
}

/// Whether the text says what the dead rank did last: who is on its host, or was sent to by it, knows.
bool saysLastCall(const std::string& text, int dead) {
  const std::string rank = "rank " + std::to_string(dead);
  return mentions(text, {"the last call of " + rank + " was AllReduce #"}) || mentions(text, {"from " + rank + " was of AllReduce #"}) ||
         mentions(text, {"the last call of " + rank + " that is known on this host was AllReduce #"});
}

/// A process that lives for as long as the test can take.
pid_t forkSleeper() {
  const pid_t child = fork();
  if (child != 0) return child;
  std::this_thread::sleep_for(std::chrono::seconds(60));
  _exit(0);
}

/// And not only there until somebody asks how it ended.
bool isAlive(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string stat;
  std::getline(file, stat);
  const size_t name = stat.rfind(") ");
  return name != std::string::npos && stat.substr(name + 2, 1) != "Z";
}

/// A rank for each process; those of `doomed` are killed when all are in the middle of all-reduces. Every survivor hears within a second
/// of one that died, on which host it was and what it did last, and they all go on without the dead. `haveChildren`: the doomed have forked
/// some by then, which outlive them, as data loaders do.
void killInTheMiddle(const std::vector<int>& hosts, const Ints& doomed, size_t count, bool haveChildren = false) {
  const int ranks = static_cast<int>(hosts.size());
  const auto isDoomed = [&](int child) { return std::find(doomed.begin(), doomed.end(), child) != doomed.end(); };
  ProcessRanks children(ranks, [&](Self& self) {
    playNamedHost(hosts[static_cast<size_t>(self.index())]);
    ncclComm_t comm = joinAll(self);
    EXPECT_EQ(sumOnce(comm, ranks), ok);
    self.note(0, getpid());
    if (haveChildren && isDoomed(self.index())) self.note(3, forkSleeper());
    self.meet(1);
    const ncclResult_t result = sumUntilError(comm, count);
    self.note(1, nowNs());
    const std::string text = lastError();
    EXPECT_EQ(result, ncclRemoteError) << text;
    const bool namesOne = std::any_of(doomed.begin(), doomed.end(), [&](int dead) {
      const std::string host = nameOfHost(hosts[static_cast<size_t>(dead)]);
      const std::string rank = std::to_string(dead);
      return mentions(text, {"rank " + rank, std::to_string(self.number(dead, 0)), host, "the last ", "AllReduce"}) &&
             mentions(verdictOf(comm), {R"({"rank":)" + rank + R"(,"host":")" + host + R"(","link":")"});
    });
    EXPECT_TRUE(namesOne) << text << verdictOf(comm);
    self.note(2, saysLastCall(text, doomed[0]) ? 1 : 0);
    self.awaitAllowed(1);
    shrinkWithout(comm, doomed, ranks);
    abortTwice(comm);
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const int64_t death = nowNs();
  for (const int dead : doomed) children.signal(dead, SIGKILL);  // before any of them is waited for
  for (const int dead : doomed) children.kill(dead);
  children.allow(1);
  int64_t saying = 0;
  for (int child = 0; child < ranks; ++child) {
    if (isDoomed(child)) continue;
    const Ended& ended = children.end(child, 20);
    EXPECT_TRUE(ended.byItself && ended.code == 0) << "child " << child << ", code " << ended.code << ":\n" << ended.text;
    EXPECT_LT(static_cast<double>(children.number(child, 1) - death) * 1e-9, kPromptSeconds) << "child " << child;
    saying += children.number(child, 2);
  }
  if (doomed.size() == 1) {
    EXPECT_GT(saying, 0) << "nobody knows what the dead rank did last";
  }
  for (const int dead : doomed)
    if (haveChildren) {
      const auto child = static_cast<pid_t>(children.number(dead, 3));
      EXPECT_TRUE(isAlive(child)) << "it was to live on";
      ::kill(child, SIGKILL);
    }
}

TEST(HostsKilled, OneOfTwoHosts) { killInTheMiddle({0, 1}, {1}, 50000); }
TEST(HostsKilled, WhoseChildrenLiveOn) { killInTheMiddle({0, 1}, {1}, 50000, true); }
TEST(HostsKilled, WhoseChildrenLiveOnWhereTheIdWasMade) { killInTheMiddle({0, 1, 1, 2}, {0, 3}, 1000, true); }
TEST(HostsKilled, TheHostThatMadeTheId) { killInTheMiddle({0, 1, 2}, {0}, 1000); }
TEST(HostsKilled, InTheMiddleOfSmallAllReduces) { killInTheMiddle({0, 0, 1, 1}, {3}, 10); }
TEST(HostsKilled, InTheMiddleOfLargeAllReduces) { killInTheMiddle({0, 1, 1, 2}, {1}, 2000000); }
TEST(HostsKilled, TwoAtOnceOnOneHost) { killInTheMiddle({0, 0, 1, 1}, {2, 3}, 10000); }
TEST(HostsKilled, TwoAtOnceOnTwoHosts) { killInTheMiddle({0, 0, 1, 1}, {1, 2}, 10000); }
TEST(HostsKilled, TwoAtOnceOfThreeHosts) { killInTheMiddle({0, 1, 2, 0}, {1, 2}, 300000); }

/// Nobody waits for anything: the state says it, and so does the next call.
TEST(HostsKilled, WhileIdle) {
  ProcessRanks children(3, [](Self& self) {
    playHost(self.index());
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
    EXPECT_EQ(sumOnce(comm, 3), ncclRemoteError);
    EXPECT_TRUE(mentions(lastError(), {"rank 2", std::to_string(self.number(2, 0)), hostName(), "AllReduce"}));
    EXPECT_EQ(ncclCommDestroy(comm), ok) << lastError();
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  children.kill(2);
  children.allow(1);
  children.expectAllWell({2}, 10);
}

/// A process of several ranks dies: its ranks are named together.
TEST(HostsKilled, AProcessOfSeveralRanks) {
  const Layout layout{"", {0, 1, 1}, {2, 2, 1}};
  ProcessRanks children(3, [&](Self& self) {
    runRanks(self, layout, [](const HostRank& here) {
      EXPECT_EQ(sumOnce(here.comm, 5), ok);
      here.meet(1);
      EXPECT_EQ(sumUntilError(here.comm, 3000), ncclRemoteError);
      const std::string text = lastError();
      EXPECT_TRUE(mentions(text, {"ranks 2, 3", "rank 2 ", "rank 3 "}));
      if (here.rank == 4) {
        EXPECT_TRUE(saysLastCall(text, 2) && saysLastCall(text, 3)) << text;
      }
      shrinkWithout(here.comm, {2, 3}, 5);
      abortPromptly(here.comm);
    });
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  children.kill(1);
  children.expectAllWell({1}, 10);
}

/// It dies somewhere in the middle of splits, wherever that is: whatever comes of them, nobody waits for ever. In every other round the
/// children have a rank of each host, so that a process has to hear of the end of one that the first of its host is not in.
TEST(HostsKilled, InTheMiddleOfSplits) {
  for (int round = 0; round < 16; ++round) {
    const bool isColoured = round % 2 == 1;
    ProcessRanks children(4, [&](Self& self) {
      playHost(isColoured ? self.index() / 2 : self.index() % 2);
      ncclComm_t comm = joinAll(self);
      self.meet(1);
      ncclResult_t result = ok;
      while (result == ok) {
        ncclComm_t child = nullptr;
        result = ncclCommSplit(comm, isColoured ? self.index() % 2 : 0, 0, &child, nullptr);
        if (result == ok) result = sumOnce(child, isColoured ? 2 : 4, 10);
        if (child != nullptr) {
          EXPECT_EQ(ncclCommDestroy(child), ok) << lastError();
        }
      }
      EXPECT_EQ(result, ncclRemoteError) << lastError();
      EXPECT_TRUE(mentions(lastError(), {"rank"}));
      shrinkWithout(comm, {2}, 4);
      abortPromptly(comm);
    });
    ASSERT_TRUE(children.awaitStageOfAll(1));
    std::this_thread::sleep_for(std::chrono::microseconds(3000 + 1300 * round));
    children.kill(2);
    children.expectAllWell({2}, 10);
    if (testing::Test::HasFailure()) FAIL() << "round " << round;
  }
}

/// One that was to survive dies in the shrink that the others have not come to yet.
TEST(HostsKilled, InTheMiddleOfAShrink) {
  ProcessRanks children(4, [](Self& self) {
    playHost(self.index());
    ncclComm_t comm = joinAll(self);
    self.meet(1);
    if (self.index() == 3) self.awaitAllowed(99);
    EXPECT_EQ(sumUntilError(comm, 1000), ncclRemoteError);
    int dead = 3;
    ncclComm_t child = nullptr;
    self.reach(2);
    if (self.index() == 0) self.awaitAllowed(2);
    const Stopwatch watch;
    ncclResult_t result = ncclCommShrink(comm, &dead, 1, &child, nullptr, NCCL_SHRINK_ABORT);
    if (result == ok) result = sumUntilError(child, 1000);  // it may have been made before anybody knew
    EXPECT_EQ(result, ncclRemoteError) << lastError();
    EXPECT_TRUE(mentions(lastError(), {"rank"}));
    EXPECT_LT(watch.seconds(), 2 * kPromptSeconds);
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

/// During ncclCommInitRank, at any moment of it. (No deadline: InitDeaths.)
TEST(HostsKilled, DuringInit) {
  for (int round = 0; round < 8; ++round) {
    ProcessRanks children(3, [](Self& self) {
      playHost(self.index());
      setenv("TUTTI_TIMEOUT_MS", "1000", 1);  // for a rank that never came, which nobody can tell from one that is late
      const ncclUniqueId id = self.id();
      ncclComm_t comm = nullptr;
      self.reach(1);
      ncclResult_t result = ncclCommInitRank(&comm, 3, id, self.index());
      if (result == ok) result = sumUntilError(comm, 10);
      EXPECT_EQ(result, ncclRemoteError) << lastError();
      EXPECT_TRUE(mentions(lastError(), {"rank"}));
      self.meet(2, {1});  // the process of the root, gone early, would be the news
      if (comm != nullptr) abortPromptly(comm);
    });
    ASSERT_TRUE(children.awaitStage(1, 1));
    std::this_thread::sleep_for(std::chrono::microseconds(2500 * round));
    children.kill(1);
    children.expectAllWell({1}, 10);
    if (testing::Test::HasFailure()) FAIL() << "round " << round;
  }
}

// ---- Stopped, left, aborted -----------------------------------------------------------------------------------------------

TEST(HostsStopped, TheOthersGiveUpAtTheDeadlineAndItHearsOfItLater) {
  ProcessRanks children(3, [](Self& self) {
    playNamedHost(self.index() == 2 ? 0 : self.index());
    ncclComm_t comm = joinAll(self);
    EXPECT_EQ(sumOnce(comm, 3), ok);
    EXPECT_EQ(tuttiCommSetTimeout(comm, 300), ok);  // only now: processes may come late
    self.meet(1);
    EXPECT_EQ(sumUntilError(comm, 10000), ncclRemoteError) << lastError();
    const std::string verdict = verdictOf(comm);
    EXPECT_TRUE(mentions(verdict, {"deadline of 300 ms", "AllReduce"}));
    if (self.index() != 1) {
      EXPECT_TRUE(mentions(verdict, {"\"kind\":\"deadline\"", "waits for rank 1"}));
      // One of the others may be in the call before: it has not come to this one either, for it waits for rank 1 there.
      const std::array<std::string_view, 3> kMissing = {"\"missing\":[1]", "\"missing\":[0,1]", "\"missing\":[1,2]"};
      EXPECT_TRUE(std::ranges::any_of(kMissing, [&](std::string_view text) { return verdict.find(text) != std::string::npos; })) << verdict;
      EXPECT_TRUE(mentions(verdict, {R"("suspects":[{"rank":1,"host":")" + nameOfHost(1) + R"(","link":"Socket )", "127.0.0.1"}));
    }
    self.reach(2);
    abortTwice(comm);
    self.reach(3);
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Stopwatch watch;
  children.signal(1, SIGSTOP);
  ASSERT_TRUE(children.awaitStageOfAll(2, {1}));
  EXPECT_LT(watch.seconds(), 0.3 + kPromptSeconds);
  ASSERT_TRUE(children.awaitStageOfAll(3, {1}));
  children.signal(1, SIGCONT);
  children.expectAllWell();
}

/// No deadline is set: a thread aborts the call that waits for a stopped peer.
TEST(HostsStopped, AbortEndsACallAtOnce) {
  for (const size_t count : {10ul, 1000000ul}) {
    ProcessRanks children(3, [count](Self& self) {
      playHost(self.index());
      ncclComm_t comm = joinAll(self);
      EXPECT_EQ(sumOnce(comm, 3), ok);
      self.meet(1);
      std::thread caller([&] { EXPECT_NE(sumUntilError(comm, count), ok); });
      if (self.index() == 1) {
        caller.join();  // it was stopped, and hears of the abort when it goes on
        abortPromptly(comm);
        return;
      }
      self.awaitAllowed(1);
      const Stopwatch watch;
      abortPromptly(comm);
      caller.join();
      EXPECT_LT(watch.seconds(), kPromptSeconds);
      self.reach(2);
    });
    ASSERT_TRUE(children.awaitStageOfAll(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    children.signal(1, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    children.allow(1);
    ASSERT_TRUE(children.awaitStageOfAll(2, {1}));
    children.signal(1, SIGCONT);
    children.expectAllWell({}, 10);
  }
}

/// Aborts in every state, each twice: before anything was called, with data that a stopped peer does not take, in a set-up.
TEST(HostsStopped, AbortsInAnyState) {
  ProcessRanks children(2, [](Self& self) {
    playHost(self.index());
    ncclComm_t fresh = joinAll(self, 0);
    ncclComm_t used = joinAll(self, 1);
    ncclComm_t finalized = joinAll(self, 2);
    ncclComm_t leaving = joinAll(self, 4);
    EXPECT_EQ(sumOnce(used, 2, 100000), ok);
    EXPECT_EQ(sumOnce(finalized, 2, 100000), ok);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    self.meet(1);
    if (self.index() == 1) {
      self.awaitAllowed(1);  // stopped meanwhile
      for (ncclComm_t comm : {fresh, used, finalized, leaving}) abortPromptly(comm);
      return;
    }
    self.awaitAllowed(1);
    EXPECT_EQ(ncclCommFinalize(finalized), ok);
    Ints values(1000);
    EXPECT_EQ(ncclSend(values.data(), 1000, ncclInt, 1, used, nullptr), ok) << "a sender may run ahead: " << lastError();
    // A destroy waits for the network to take it.
    EXPECT_EQ(ncclSend(values.data(), 1000, ncclInt, 1, leaving, nullptr), ok) << lastError();
    std::atomic<bool> isDestroyed{false};
    std::thread destroyer([&] {
      EXPECT_EQ(ncclCommDestroy(leaving), ok) << lastError();
      isDestroyed = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(isDestroyed) << "nothing was to wait for";
    const Stopwatch watch;
    EXPECT_EQ(ncclCommAbort(leaving), ok);
    destroyer.join();
    EXPECT_LT(watch.seconds(), kPromptSeconds);
    const ncclUniqueId lonely = self.id(3);
    ncclComm_t settingUp = nullptr;
    const ncclResult_t begun = ncclCommInitRankConfig(&settingUp, 2, lonely, 0, &config);
    EXPECT_TRUE(begun == ok || begun == ncclInProgress) << lastError();
    for (ncclComm_t comm : {settingUp, fresh, used, finalized}) {
      abortTwice(comm);
    }
    self.reach(2);
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  children.signal(1, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  children.allow(1);
  ASSERT_TRUE(children.awaitStage(0, 2));
  children.signal(1, SIGCONT);
  children.expectAllWell({}, 10);
}

/// A rank that ends instead of calling.
TEST(HostsLeft, ARankThatLeavesInsteadOfCalling) {
  ProcessRanks children(3, [](Self& self) {
    playHost(self.index() / 2);
    ncclComm_t comm = joinAll(self);
    EXPECT_EQ(sumOnce(comm, 3), ok);
    self.meet(1);
    if (self.index() != 2) {
      EXPECT_EQ(sumOnce(comm, 3), ncclRemoteError);
      EXPECT_TRUE(mentions(ncclGetLastError(comm), {"rank 2 has destroyed"}));
    }
    EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  children.expectAllWell({}, 10);
}

/// The first process of a host has left a communicator that the second still waits in: it hears what happens there all the same.
TEST(HostsLeft, NewsReachTheSecondProcessOfAHostWhenTheFirstHasLeft) {
  ProcessRanks children(3, [](Self& self) {
    playHost(self.index() / 2);
    ncclComm_t comm = joinAll(self);
    ncclComm_t child = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, 0, self.index(), &child, nullptr), ok) << lastError();
    EXPECT_EQ(sumOnce(child, 3), ok);
    self.meet(1);
    if (self.index() == 0) {
      EXPECT_EQ(ncclCommDestroy(child), ok);
    }
    self.meet(2);
    if (self.index() == 1) {
      int value = 0;
      const Stopwatch watch;
      EXPECT_EQ(ncclRecv(&value, 1, ncclInt, 2, child, nullptr), ncclRemoteError);
      EXPECT_TRUE(mentions(lastError(), {"rank 2 aborted"}));
      EXPECT_LT(watch.seconds(), 0.1 + kPromptSeconds);
      abortPromptly(child);
    } else if (self.index() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      abortPromptly(child);
    }
    EXPECT_EQ(sumOnce(comm, 3), ok) << lastError();
    EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  children.expectAllWell({}, 10);
}

/// One aborts, with no deadline anywhere: the others' calls end.
TEST(HostsLeft, AnAbortEndsTheCallsOfAll) {
  ProcessRanks children(4, [](Self& self) {
    playHost(self.index() / 2);
    ncclComm_t comm = joinAll(self);
    EXPECT_EQ(sumOnce(comm, 4), ok);
    self.meet(1);
    const Stopwatch watch;
    if (self.index() != 3) {
      EXPECT_EQ(sumUntilError(comm, 70000), ncclRemoteError);
      EXPECT_TRUE(mentions(ncclGetLastError(comm), {"rank 3 aborted"}));
    }
    abortPromptly(comm);
    EXPECT_LT(watch.seconds(), kPromptSeconds);
  });
  children.expectAllWell({}, 10);
}

}  // namespace
}  // namespace tutti::faults::hosts_lost_test
