// Lives of communicators between processes: made, divided and ended in every way and order.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "faults/process_ranks.h"

namespace tutti::faults::process_life_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
using Self = ProcessRanks::Self;

std::string lastError() { return ncclGetLastError(nullptr); }

int rankOf(ncclComm_t comm) {
  int rank = -1;
  EXPECT_EQ(ncclCommUserRank(comm, &rank), ok);
  return rank;
}

int countOf(ncclComm_t comm) {
  int count = -1;
  EXPECT_EQ(ncclCommCount(comm, &count), ok);
  return count;
}

/// Asks until it is complete.
ncclResult_t settle(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ok);
  return state;
}

TEST(ProcessLife, SplitsByColourAndKey) {
  ProcessRanks children(4, [](Self& self) {
    ncclComm_t comm = joinAll(self);
    for (const int share : {0, 1}) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.splitShare = share;
      ncclComm_t pair = nullptr;
      ASSERT_EQ(ncclCommSplit(comm, self.index() % 2, -self.index(), &pair, &config), ok) << lastError();
      EXPECT_EQ(countOf(pair), 2);
      EXPECT_EQ(rankOf(pair), self.index() < 2 ? 1 : 0) << "the key turns the order round";
      for (const size_t count : {1ul, 5000ul, 200000ul}) EXPECT_EQ(sumOnce(pair, 2, count), ok) << lastError();
      ncclComm_t alone = nullptr;
      ASSERT_EQ(ncclCommSplit(pair, rankOf(pair), 0, &alone, nullptr), ok) << lastError();
      EXPECT_EQ(sumOnce(alone, 1), ok);
      ncclComm_t some = nullptr;
      ASSERT_EQ(ncclCommSplit(comm, self.index() == 2 ? NCCL_SPLIT_NOCOLOR : 7, self.index(), &some, nullptr), ok) << lastError();
      EXPECT_EQ(some == nullptr, self.index() == 2);
      if (some != nullptr) {
        EXPECT_EQ(sumOnce(some, 3, 70000), ok) << lastError();
        EXPECT_EQ(ncclCommDestroy(some), ok);
      }
      // The parent may go first, and in another order on every rank.
      if (share == 1 && self.index() % 2 == 0) {
        EXPECT_EQ(ncclCommDestroy(comm), ok);
      }
      EXPECT_EQ(sumOnce(pair, 2), ok) << lastError();
      EXPECT_EQ(ncclCommDestroy(pair), ok);
      EXPECT_EQ(ncclCommDestroy(alone), ok);
      if (share == 1 && self.index() % 2 == 1) {
        EXPECT_EQ(ncclCommDestroy(comm), ok);
      }
    }
  });
  children.expectAllWell();
}

TEST(ProcessLife, ShrinksRevokesAndFinalizes) {
  ProcessRanks children(3, [](Self& self) {
    ncclComm_t comm = joinAll(self);
    int gone = 1;
    if (self.index() != gone) {
      ncclComm_t child = nullptr;
      ASSERT_EQ(ncclCommShrink(comm, &gone, 1, &child, nullptr, NCCL_SHRINK_DEFAULT), ok) << lastError();
      EXPECT_EQ(sumOnce(child, 2, 50000), ok) << lastError();
      EXPECT_EQ(ncclCommFinalize(child), ok);
      EXPECT_EQ(ncclCommDestroy(child), ok);
    }
    EXPECT_EQ(sumOnce(comm, 3), ok) << "the parent is as it was: " << lastError();
    self.meet(1);
    gone = 0;  // it waits in a call that nobody else makes
    if (self.index() == gone) {
      EXPECT_EQ(sumOnce(comm, 3), ncclRemoteError) << lastError();
    } else {
      ncclComm_t child = nullptr;
      ASSERT_EQ(ncclCommShrink(comm, &gone, 1, &child, nullptr, NCCL_SHRINK_ABORT), ok) << lastError();
      EXPECT_EQ(sumOnce(child, 2, 50000), ok) << lastError();
      EXPECT_EQ(ncclCommDestroy(child), ok);
    }
    EXPECT_EQ(ncclCommDestroy(comm), ok) << lastError();

    ncclComm_t other = joinAll(self, 1);
    EXPECT_EQ(sumOnce(other, 3), ok);
    self.meet(2);
    if (self.index() == 2) {
      EXPECT_EQ(ncclCommRevoke(other, NCCL_REVOKE_DEFAULT), ok) << lastError();
    } else {
      EXPECT_EQ(sumUntilError(other, 100), ncclRemoteError);
      EXPECT_NE(lastError().find("revoked"), std::string::npos) << lastError();
      EXPECT_EQ(ncclCommRevoke(other, NCCL_REVOKE_DEFAULT), ok) << lastError();
    }
    ncclComm_t again = nullptr;
    ASSERT_EQ(ncclCommSplit(other, 0, self.index(), &again, nullptr), ok) << lastError();
    EXPECT_EQ(sumOnce(again, 3), ok) << lastError();
    EXPECT_EQ(ncclCommDestroy(other), ok);
    EXPECT_EQ(ncclCommDestroy(again), ok);
  });
  children.expectAllWell();
}

TEST(ProcessLife, NonBlockingRanksAreAskedUntilTheyAreThere) {
  ProcessRanks children(3, [](Self& self) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    const ncclUniqueId id = self.id();
    const ncclResult_t begun = ncclCommInitRankConfig(&comm, 3, id, self.index(), &config);
    ASSERT_TRUE(begun == ok || begun == ncclInProgress) << lastError();
    ASSERT_EQ(settle(comm), ok) << lastError();
    std::vector<int> values(100000, self.index());
    const ncclResult_t called = ncclAllReduce(values.data(), values.data(), values.size(), ncclInt, ncclSum, comm, nullptr);
    ASSERT_TRUE(called == ok || called == ncclInProgress) << lastError();
    ASSERT_EQ(settle(comm), ok);
    EXPECT_EQ(values, std::vector<int>(100000, 3));
    ncclComm_t child = nullptr;
    const ncclResult_t split = ncclCommSplit(comm, 0, self.index(), &child, &config);
    ASSERT_TRUE(split == ok || split == ncclInProgress) << lastError();
    ASSERT_EQ(settle(comm), ok);
    ASSERT_NE(child, nullptr);
    ASSERT_EQ(settle(child), ok);
    EXPECT_EQ(countOf(child), 3);
    for (ncclComm_t ending : {child, comm}) {
      const ncclResult_t ended = ncclCommFinalize(ending);
      ASSERT_TRUE(ended == ok || ended == ncclInProgress) << lastError();
      ASSERT_EQ(settle(ending), ok);
      EXPECT_EQ(ncclCommDestroy(ending), ok);
    }
  });
  children.expectAllWell();
}

TEST(ProcessLife, SeveralIdsMakeOneCommunicator) {
  ProcessRanks children(4, [](Self& self) {
    ncclUniqueId ids[3];
    for (int i = 0; i < 3; ++i) ids[i] = self.id(i, i);
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRankScalable(&comm, 4, self.index(), 3, ids, nullptr), ok) << lastError();
    EXPECT_EQ(sumOnce(comm, 4, 30000), ok) << lastError();
    EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  children.expectAllWell();
}

/// Two threads in each of two processes, several communicators at once, in different orders of ranks.
TEST(ProcessLife, RanksAreThreadsOfProcesses) {
  ProcessRanks children(2, [](Self& self) {
    const ncclUniqueId ids[2] = {self.id(0), self.id(1, 1)};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        const int mine[2] = {self.index() * 2 + t, t * 2 + self.index()};  // side by side, and in turns
        ncclComm_t comms[2] = {};
        for (int c = 0; c < 2; ++c) ASSERT_EQ(ncclCommInitRank(&comms[c], 4, ids[c], mine[c]), ok) << lastError();
        for (int i = 0; i < 20; ++i)
          for (ncclComm_t comm : comms)
            for (const size_t count : {3ul, 20000ul, 400000ul}) ASSERT_EQ(sumOnce(comm, 4, i == 0 ? count : 3), ok) << lastError();
        ncclComm_t child = nullptr;
        ASSERT_EQ(ncclCommSplit(comms[1], t, 0, &child, nullptr), ok) << lastError();
        EXPECT_EQ(sumOnce(child, 2), ok) << lastError();
        for (ncclComm_t comm : {comms[0], child, comms[1]}) EXPECT_EQ(ncclCommDestroy(comm), ok);
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  children.expectAllWell();
}

/// One thread of each process drives two ranks in groups.
TEST(ProcessLife, OneThreadDrivesRanksThatMeetOtherProcesses) {
  ProcessRanks children(2, [](Self& self) {
    const ncclUniqueId id = self.id();
    ncclComm_t comms[2] = {};
    ASSERT_EQ(ncclGroupStart(), ok);
    for (int t = 0; t < 2; ++t) ASSERT_EQ(ncclCommInitRank(&comms[t], 4, id, t * 2 + self.index()), ok) << lastError();
    ASSERT_EQ(ncclGroupEnd(), ok) << lastError();
    std::vector<int> values[2] = {std::vector<int>(90000, 1), std::vector<int>(90000, 2)};
    ASSERT_EQ(ncclGroupStart(), ok);
    for (int t = 0; t < 2; ++t)
      ASSERT_EQ(ncclAllReduce(values[t].data(), values[t].data(), 90000, ncclInt, ncclSum, comms[t], nullptr), ok);
    ASSERT_EQ(ncclGroupEnd(), ok) << lastError();
    EXPECT_EQ(values[0], std::vector<int>(90000, 6));
    EXPECT_EQ(values[1], values[0]);
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  children.expectAllWell();
}

/// `live` again and again, in step; after some to warm up it costs nothing.
void expectNoGrowth(Self& self, int lives, const std::function<void()>& live) {
  for (int i = 0; i < lives / 10; ++i) live();
  self.meet(1);
  const Footprint before = Footprint::settled();
  self.meet(2);
  for (int i = 0; i < lives && !testing::Test::HasFailure(); ++i) live();
  self.meet(3);
  const Footprint after = Footprint::settled();
  self.meet(4);
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.threads, before.threads);
  EXPECT_LE(after.mappings - before.mappings, 16);
#if !defined(TUTTI_SANITIZED)  // what a sanitizer keeps back is no leak
  EXPECT_LE(after.residentKiB - before.residentKiB, 2048);
  EXPECT_LE(after.virtualKiB - before.virtualKiB, 16384);
#endif
  EXPECT_LE(after.sharedKiB - before.sharedKiB, 512);
}

TEST(ProcessLife, AThousandSplitsCostNothing) {
  ProcessRanks children(2, [](Self& self) {
    ncclComm_t comm = joinAll(self);
    expectNoGrowth(self, 1000, [&] {
      ncclComm_t child = nullptr;
      ASSERT_EQ(ncclCommSplit(comm, 0, self.index(), &child, nullptr), ok) << lastError();
      ASSERT_EQ(sumOnce(child, 2, 100), ok) << lastError();
      EXPECT_EQ(ncclCommDestroy(child), ok);
    });
    EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  children.expectAllWell({}, 60);
}

TEST(ProcessLife, HundredsOfInitsCostNothing) {
  ProcessRanks children(2, [](Self& self) {
    expectNoGrowth(self, 100, [&] {
      ncclComm_t comm = nullptr;
      ASSERT_EQ(ncclCommInitRank(&comm, 2, self.freshId(), self.index()), ok) << lastError();
      ASSERT_EQ(sumOnce(comm, 2, 100), ok) << lastError();
      EXPECT_EQ(ncclCommDestroy(comm), ok);
    });
  });
  children.expectAllWell({}, 60);
}

}  // namespace
}  // namespace tutti::faults::process_life_test
