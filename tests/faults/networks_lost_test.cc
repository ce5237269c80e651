// Ranks on several hosts over a network plugin: deaths, stops and aborts end as they do over the library's own sockets.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "faults/hosts.h"

namespace tutti::faults::networks_lost_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
constexpr int kHosts = 3;
using Self = ProcessRanks::Self;

ncclComm_t joinOverPlugin(Self& self) {
  playNamedHost(self.index());
  setenv("NCCL_NET_PLUGIN", "example", 1);
  setenv("NCCL_NET", "Example", 1);
  ncclComm_t comm = joinAll(self);
  EXPECT_EQ(sumOnce(comm, kHosts, 1000), ok) << lastError();
  return comm;
}

/// Rank 0 sends to 1, 1 to 2, 2 to 0.
class Passing {
 public:
  Passing(const Self& self, ncclComm_t comm, size_t count)
      : rank_(self.index()), comm_(comm), in_(count, rank_), out_(count, -1) {}

  ncclResult_t operator()() {
    ncclGroupStart();
    (void)ncclSend(in_.data(), in_.size(), ncclInt, (rank_ + 1) % kHosts, comm_, nullptr);
    (void)ncclRecv(out_.data(), out_.size(), ncclInt, previous(), comm_, nullptr);
    if (const ncclResult_t result = ncclGroupEnd(); result != ok) return result;
    EXPECT_EQ(out_.front(), previous());
    EXPECT_EQ(out_.back(), previous());
    return ok;
  }

  ncclResult_t untilError() {
    ncclResult_t result = ok;
    while (result == ok) result = (*this)();
    return result;
  }

 private:
  int previous() const { return (rank_ + kHosts - 1) % kHosts; }

  int rank_;
  ncclComm_t comm_;
  std::vector<int> in_, out_;
};

struct Doing {
  const char* name;
  bool sends;
  size_t count;
};
void PrintTo(const Doing& doing, std::ostream* out) { *out << doing.name; }

ncclResult_t doOnce(const Self& self, ncclComm_t comm, const Doing& doing) {
  return doing.sends ? Passing(self, comm, doing.count)() : sumOnce(comm, kHosts, doing.count);
}

ncclResult_t doUntilError(const Self& self, ncclComm_t comm, const Doing& doing) {
  return doing.sends ? Passing(self, comm, doing.count).untilError() : sumUntilError(comm, doing.count);
}

class NetworksLost : public testing::TestWithParam<Doing> {};

TEST_P(NetworksLost, WhoIsKilledIsNamed) {
  const Doing doing = GetParam();
  ProcessRanks children(kHosts, [&](Self& self) {
    ncclComm_t comm = joinOverPlugin(self);
    EXPECT_EQ(doOnce(self, comm, doing), ok) << lastError();  // rank 1 is seen in such a call, however soon it is killed
    self.note(0, getpid());
    self.meet(1);
    const ncclResult_t result = doUntilError(self, comm, doing);
    self.reach(2);
    EXPECT_EQ(result, ncclRemoteError) << lastError();
    EXPECT_TRUE(mentions(lastError(), {"rank 1", nameOfHost(1), std::to_string(self.number(1, 0)), doing.sends ? " bytes" : "AllReduce"}));
    EXPECT_TRUE(mentions(verdictOf(comm), {R"("rank":1,"host":")" + nameOfHost(1) + R"(","link":"Example)"}));
    int dead = 1;
    ncclComm_t rest = nullptr;
    ASSERT_EQ(ncclCommShrink(comm, &dead, 1, &rest, nullptr, NCCL_SHRINK_ABORT), ok) << lastError();
    EXPECT_EQ(sumOnce(rest, kHosts - 1, doing.count), ok) << lastError();
    EXPECT_EQ(ncclCommDestroy(rest), ok) << lastError();
    abortPromptly(comm);
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const Stopwatch watch;
  children.kill(1);
  ASSERT_TRUE(children.awaitStageOfAll(2, {1}));
  EXPECT_LT(watch.seconds(), kPromptSeconds);
  children.expectAllWell({1}, 20);
}

/// Aborted while a peer stands still: at once, and the peer that goes on later hears of it.
TEST_P(NetworksLost, AbortsReturnWhileAPeerStandsStill) {
  const Doing doing = GetParam();
  ProcessRanks children(kHosts, [&](Self& self) {
    ncclComm_t comm = joinOverPlugin(self);
    self.meet(1);
    std::thread aborter([&] {
      if (self.index() == 2) return;
      self.awaitAllowed(1);
      EXPECT_EQ(ncclCommAbort(comm), ok);
      self.reach(2);
    });
    const ncclResult_t result = doUntilError(self, comm, doing);
    aborter.join();
    EXPECT_NE(result, ok);
    if (self.index() == 2) {
      EXPECT_EQ(result, ncclRemoteError) << lastError();
      abortPromptly(comm);
    }
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  children.signal(2, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const Stopwatch watch;
  children.allow(1);
  ASSERT_TRUE(children.awaitStageOfAll(2, {2}));
  EXPECT_LT(watch.seconds(), kPromptSeconds);
  children.signal(2, SIGCONT);
  children.expectAllWell({}, 20);
}

INSTANTIATE_TEST_SUITE_P(Calls, NetworksLost,
                         testing::Values(Doing{"SmallAllReduce", false, 10}, Doing{"LargeAllReduce", false, 1000000},
                                         Doing{"SmallMessages", true, 10}, Doing{"LargeMessages", true, 1000000}),
                         [](const auto& one) { return one.param.name; });

/// Nobody answers any more, and a deadline is set: it ends the calls and suspects who is silent.
TEST(NetworksStopped, TheDeadlineEndsCalls) {
  ProcessRanks children(kHosts, [&](Self& self) {
    ncclComm_t comm = joinOverPlugin(self);
    EXPECT_EQ(tuttiCommSetTimeout(comm, 500), ok);
    self.meet(1);
    const ncclResult_t result = sumUntilError(comm, 1000);
    self.reach(2);
    EXPECT_EQ(result, ncclRemoteError) << lastError();
    if (self.index() != 1) {
      EXPECT_TRUE(mentions(verdictOf(comm), {"deadline of 500 ms", R"("suspects":[{"rank":1,"host":")" + nameOfHost(1)}));
    }
    abortPromptly(comm);
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  children.signal(1, SIGSTOP);
  const Stopwatch watch;
  ASSERT_TRUE(children.awaitStageOfAll(2, {1}));
  EXPECT_LT(watch.seconds(), 0.5 + 2 * kPromptSeconds);
  children.signal(1, SIGCONT);
  children.expectAllWell({}, 20);
}

}  // namespace
}  // namespace tutti::faults::networks_lost_test
