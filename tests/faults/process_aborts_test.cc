// ncclCommAbort returns at once whatever another thread of the process waits for and whatever state the peers are in.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "faults/hosts.h"
#include "faults/process_ranks.h"

namespace tutti::faults::process_aborts_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
constexpr int kRanks = 3;
constexpr int kPeer = 2;  // it is stopped or killed
using Self = ProcessRanks::Self;

/// What a thread of ranks 0 and 1 waits in for rank 2. Large calls have values under way when they are aborted.
struct Wait {
  const char* name;
  ncclResult_t (*call)(ncclComm_t comm, int* data);
};

constexpr size_t kLarge = 1000000;

/// Ranks 0 and 1 leave each other out, so that each waits for rank 2 alone.
ncclResult_t shrinkWithThePeer(ncclComm_t comm, int flags) {
  int rank = -1;
  EXPECT_EQ(ncclCommUserRank(comm, &rank), ok);
  int excluded = 1 - rank;
  ncclComm_t child = nullptr;
  return ncclCommShrink(comm, &excluded, 1, &child, nullptr, flags);
}

const Wait kWaits[] = {
    {"SmallAllReduce", [](ncclComm_t c, int* d) { return ncclAllReduce(d, d, 1, ncclInt, ncclSum, c, nullptr); }},
    {"LargeAllReduce", [](ncclComm_t c, int* d) { return ncclAllReduce(d, d, kLarge, ncclInt, ncclSum, c, nullptr); }},
    {"SendToIt", [](ncclComm_t c, int* d) { return ncclSend(d, kLarge, ncclInt, kPeer, c, nullptr); }},
    {"Recv", [](ncclComm_t c, int* d) { return ncclRecv(d, 1, ncclInt, kPeer, c, nullptr); }},
    {"Split",
     [](ncclComm_t c, int*) {
       ncclComm_t child = nullptr;
       return ncclCommSplit(c, 0, 0, &child, nullptr);
     }},
    {"Shrink", [](ncclComm_t c, int*) { return shrinkWithThePeer(c, NCCL_SHRINK_DEFAULT); }},
    {"ShrinkThatEndsWork", [](ncclComm_t c, int*) { return shrinkWithThePeer(c, NCCL_SHRINK_ABORT); }},
};

constexpr int kStopped = SIGSTOP;
constexpr int kKilled = SIGKILL;

/// The wait, what happens to rank 2, and where the ranks are.
class ProcessAborts : public testing::TestWithParam<std::tuple<Wait, int, Layout>> {};

TEST_P(ProcessAborts, ReturnAtOnceFromTwoThreads) {
  const auto& [wait, fate, layout] = GetParam();
  ProcessRanks children(kRanks, [wait = wait, layout = layout](Self& self) {
    if (!layout.hosts.empty()) playHost(layout.hosts[static_cast<size_t>(self.index())]);
    ncclComm_t comm = joinAll(self);
    EXPECT_EQ(sumOnce(comm, kRanks), ok);
    self.reach(1);
    if (self.index() == kPeer) {
      self.awaitAllowed(3);
      abortPromptly(comm);
      return;
    }
    self.awaitAllowed(1);
    std::vector<int> data(kLarge);
    std::atomic<bool> hasReturned{false};
    std::thread waiter([&] {
      const ncclResult_t result = wait.call(comm, data.data());
      EXPECT_TRUE(result == ncclRemoteError || result == ncclInvalidUsage) << result << ' ' << ncclGetLastError(nullptr);
      hasReturned = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    const Stopwatch watch;
    // Whichever takes effect: the other, and those that come before it is over, have nothing left to do.
    std::atomic<bool> isAborted{false};
    std::thread second([&] {
      do {
        const Stopwatch own;
        EXPECT_EQ(ncclCommAbort(comm), ok) << ncclGetLastError(nullptr);
        EXPECT_LT(own.seconds(), kPromptSeconds);
      } while (!isAborted && !testing::Test::HasFailure());
    });
    const ncclResult_t first = ncclCommAbort(comm);
    isAborted = true;
    EXPECT_EQ(first, ok);
    EXPECT_LT(watch.seconds(), kPromptSeconds);
    second.join();
    waiter.join();
    EXPECT_LT(watch.seconds(), kPromptSeconds);
    EXPECT_TRUE(hasReturned);
    const ncclResult_t again = ncclCommAbort(comm);
    EXPECT_EQ(again, ok);
    self.reach(2);
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  if (fate == kKilled)
    children.kill(kPeer);
  else
    children.signal(kPeer, fate);
  children.allow(1);
  for (int child = 0; child < kPeer; ++child) EXPECT_TRUE(children.awaitStage(child, 2));
  if (fate == kStopped) children.signal(kPeer, SIGCONT);
  children.allow(3);
  if (fate == kKilled)
    children.expectAllWell({kPeer});
  else
    children.expectAllWell();
}

INSTANTIATE_TEST_SUITE_P(While, ProcessAborts,
                         testing::Combine(testing::ValuesIn(kWaits), testing::Values(kStopped, kKilled),
                                          testing::Values(Layout{"OneHost", {}}, Layout{"ThreeHosts", {0, 1, 2}})),
                         [](const auto& test) {
                           const bool isKilled = std::get<1>(test.param) == kKilled;
                           return std::string(std::get<0>(test.param).name) + (isKilled ? "Killed" : "Stopped") +
                                  std::get<2>(test.param).name;
                         });

/// A communicator that is being made, without blocking, with a peer that has stopped before it came.
class ProcessAbortsOfInit : public testing::TestWithParam<Layout> {};

TEST_P(ProcessAbortsOfInit, ReturnAtOnce) {
  ProcessRanks children(kRanks, [](Self& self) {
    if (!GetParam().hosts.empty()) playHost(GetParam().hosts[static_cast<size_t>(self.index())]);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclUniqueId id = self.id();
    self.reach(1);
    if (self.index() == kPeer) return self.awaitAllowed(3);
    self.awaitAllowed(1);
    ncclComm_t comm = nullptr;
    const ncclResult_t begun = ncclCommInitRankConfig(&comm, kRanks, id, self.index(), &config);
    ASSERT_TRUE(begun == ok || begun == ncclInProgress) << lastError();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ncclResult_t state = ok;
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ok);
    EXPECT_TRUE(state == ncclInProgress || self.index() != 0) << state;
    self.reach(2);
    if (self.index() != 0) self.awaitStage(0, 2);  // which would hear of it
    abortPromptly(comm);
    self.reach(3);
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  children.signal(kPeer, SIGSTOP);
  children.allow(1);
  for (int child = 0; child < kPeer; ++child) EXPECT_TRUE(children.awaitStage(child, 3));
  children.signal(kPeer, SIGCONT);
  children.allow(3);
  children.expectAllWell();
}

/// The same of blocking calls: the handle is there before they return, and another thread aborts it. The other rank that waits hears of it.
/// Once the process of the root aborts, and once the other one, in communicators of their own.
TEST_P(ProcessAbortsOfInit, EndsABlockingCallThatWaitsForARankThatNeverComes) {
  ProcessRanks children(2 * kRanks, [](Self& self) {
    const int aborter = self.index() / kRanks;
    const int rank = self.index() % kRanks;
    if (!GetParam().hosts.empty()) playHost(GetParam().hosts[static_cast<size_t>(rank)]);
    const ncclUniqueId id = self.id(aborter, aborter * kRanks);
    if (rank == kPeer) return self.meet(2);
    ncclComm_t comm = nullptr;
    const std::atomic_ref<ncclComm_t> seen(comm);
    std::thread caller([&] {
      EXPECT_EQ(ncclCommInitRank(&comm, kRanks, id, rank), ncclRemoteError);
      EXPECT_TRUE(mentions(lastError(), {"rank " + std::to_string(aborter) + " aborted its communicator"}));
    });
    while (seen.load(std::memory_order_acquire) == nullptr) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    self.meet(1, {kPeer, kRanks + kPeer});
    const Stopwatch watch;
    if (rank == aborter) abortPromptly(seen.load());
    caller.join();
    EXPECT_LT(watch.seconds(), kPromptSeconds);
    EXPECT_EQ(comm, nullptr);
    self.meet(2);  // the process of the root, gone early, would be the news
  });
  children.expectAllWell({}, 10);
}

INSTANTIATE_TEST_SUITE_P(Layouts, ProcessAbortsOfInit, testing::Values(Layout{"OneHost", {}}, Layout{"ThreeHosts", {0, 1, 2}}),
                         [](const auto& layout) { return layout.param.name; });

}  // namespace
}  // namespace tutti::faults::process_aborts_test
