// Ranks on several hosts: every call gives what it gives elsewhere, communicators are divided and ended, and nothing is left behind.
#include "faults/hosts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <thread>
#include <vector>

namespace tutti::faults::hosts_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
using Self = ProcessRanks::Self;
using Ints = std::vector<int>;

const Layout kTwoOfOne{"TwoHostsOfOne", {0, 1}};
const Layout kTwoOfTwo{"TwoHostsOfTwo", {0, 0, 1, 1}};
const Layout kUneven{"ThreeHostsUneven", {0, 1, 1, 2}};
const Layout kInTurns{"HostsInTurns", {0, 1, 0, 1}};
const Layout kThreads{"ThreadsAndProcesses", {0, 1, 1}, {3, 1, 2}};

// ---- Calls ----------------------------------------------------------------------------------------------------------------

/// What rank `rank` gives for element `i`, and the sum of all.
int given(int rank, size_t i) { return rank * 1000 + static_cast<int>(i % 997); }
int sumOf(int ranks, size_t i) { return ranks * (ranks - 1) / 2 * 1000 + ranks * static_cast<int>(i % 997); }

Ints gives(int rank, size_t count) {
  Ints values(count);
  for (size_t i = 0; i < count; ++i) values[i] = given(rank, i);
  return values;
}
Ints sums(int ranks, size_t count) {
  Ints values(count);
  for (size_t i = 0; i < count; ++i) values[i] = sumOf(ranks, i);
  return values;
}
Ints part(const Ints& all, size_t index, size_t count) {
  const auto from = all.begin() + static_cast<ptrdiff_t>(index * count);
  return Ints(from, from + static_cast<ptrdiff_t>(count));
}
/// What a gather of `count` from everybody gives.
Ints gathered(int ranks, size_t count) {
  Ints all;
  for (int r = 0; r < ranks; ++r) {
    const Ints one = gives(r, count);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

/// One caller's view of a communicator; every check says what it is about.
struct Calls {
  ncclComm_t comm;
  int rank;
  int ranks;
  size_t count;

  size_t total() const { return count * static_cast<size_t>(ranks); }
  void check(ncclResult_t result, const Ints& is, const Ints& wanted, const char* call) const {
    ASSERT_EQ(result, ok) << call << " of " << count << ": " << lastError();
    ASSERT_TRUE(is == wanted) << call << " of " << count << " on rank " << rank;
  }

  void reductions(int root) const {
    const Ints in = gives(rank, count);
    Ints out(count, -1);
    check(ncclAllReduce(in.data(), out.data(), count, ncclInt, ncclSum, comm, nullptr), out, sums(ranks, count), "AllReduce");
    out = in;
    check(ncclAllReduce(out.data(), out.data(), count, ncclInt, ncclMax, comm, nullptr), out, gives(ranks - 1, count), "AllReduce max");
    out.assign(count, -1);
    check(ncclReduce(in.data(), out.data(), count, ncclInt, ncclSum, root, comm, nullptr), out,
          rank == root ? sums(ranks, count) : Ints(count, -1), "Reduce");
    const Ints all = gives(rank, total());
    out.assign(count, -1);
    check(ncclReduceScatter(all.data(), out.data(), count, ncclInt, ncclSum, comm, nullptr), out,
          part(sums(ranks, total()), static_cast<size_t>(rank), count), "ReduceScatter");
  }
  void copies(int root) const {
    Ints out = rank == root ? gives(root, count) : Ints(count, -1);
    check(ncclBroadcast(out.data(), out.data(), count, ncclInt, root, comm, nullptr), out, gives(root, count), "Broadcast");
    const Ints in = gives(rank, count);
    Ints all(total(), -1);
    check(ncclAllGather(in.data(), all.data(), count, ncclInt, comm, nullptr), all, gathered(ranks, count), "AllGather");
    all.assign(total(), -1);
    check(ncclGather(in.data(), all.data(), count, ncclInt, root, comm, nullptr), all,
          rank == root ? gathered(ranks, count) : Ints(total(), -1), "Gather");
    const Ints whole = gathered(ranks, count);
    out.assign(count, -1);
    check(ncclScatter(rank == root ? whole.data() : nullptr, out.data(), count, ncclInt, root, comm, nullptr), out, gives(rank, count),
          "Scatter");
    const Ints mine = gives(rank, total());
    Ints wanted;
    for (int r = 0; r < ranks; ++r) {
      const Ints theirs = part(gives(r, total()), static_cast<size_t>(rank), count);
      wanted.insert(wanted.end(), theirs.begin(), theirs.end());
    }
    all.assign(total(), -1);
    check(ncclAlltoAll(mine.data(), all.data(), count, ncclInt, comm, nullptr), all, wanted, "AlltoAll");
  }
  /// To the right, from the left; in a group with a collective.
  void messages() const {
    const int right = (rank + 1) % ranks;
    const int left = (rank + ranks - 1) % ranks;
    const Ints in = gives(rank, count);
    Ints out(count, -1);
    Ints sum(count, -1);
    ASSERT_EQ(ncclGroupStart(), ok);
    EXPECT_EQ(ncclSend(in.data(), count, ncclInt, right, comm, nullptr), ok) << lastError();
    EXPECT_EQ(ncclAllReduce(in.data(), sum.data(), count, ncclInt, ncclSum, comm, nullptr), ok) << lastError();
    EXPECT_EQ(ncclRecv(out.data(), count, ncclInt, left, comm, nullptr), ok) << lastError();
    const ncclResult_t ended = ncclGroupEnd();
    check(ended, out, gives(left, count), "Send and Recv");
    check(ended, sum, sums(ranks, count), "AllReduce beside messages");
    if (rank == 0) {
      ASSERT_EQ(ncclSend(in.data(), count, ncclInt, ranks - 1, comm, nullptr), ok) << lastError();
    }
    if (rank == ranks - 1) check(ncclRecv(out.data(), count, ncclInt, 0, comm, nullptr), out, gives(0, count), "Recv");
  }
};

/// Everything that can be called, with counts of every kind.
void callEverything(ncclComm_t comm, int rank, int ranks) {
  int root = 0;
  for (const size_t count : {0ul, 1ul, 2ul, 7ul, 1000ul, 4097ul, 65536ul, 300001ul}) {
    const Calls calls{comm, rank, ranks, count};
    calls.reductions(root);
    calls.copies(ranks - 1 - root);
    calls.messages();
    if (testing::Test::HasFatalFailure()) return;
    root = (root + 1) % ranks;
  }
}

class Hosts : public testing::TestWithParam<Layout> {};

TEST_P(Hosts, EveryCallIsRight) {
  const Layout& layout = GetParam();
  ProcessRanks children(layout.processes(), [&](Self& self) {
    runRanks(self, layout, [&](const HostRank& here) {
      const auto [rank, comm, meet] = here;
      callEverything(comm, rank, layout.ranks());
      EXPECT_EQ(ncclCommDestroy(comm), ok) << lastError();
    });
  });
  children.expectAllWell();
}

/// Children within a host, across hosts, of all and of one, used beside their parent and after it.
TEST_P(Hosts, SplitsAndShrinks) {
  const Layout& layout = GetParam();
  const int ranks = layout.ranks();
  ProcessRanks children(layout.processes(), [&](Self& self) {
    runRanks(self, layout, [&](const HostRank& here) {
      const auto [rank, comm, meet] = here;
      ncclComm_t all = nullptr;
      ASSERT_EQ(ncclCommSplit(comm, 0, -rank, &all, nullptr), ok) << lastError();
      EXPECT_EQ(sumOnce(all, ranks, 50000), ok) << lastError();
      ncclComm_t some = nullptr;
      ASSERT_EQ(ncclCommSplit(comm, rank == 0 ? NCCL_SPLIT_NOCOLOR : rank % 2, rank, &some, nullptr), ok) << lastError();
      EXPECT_EQ(some == nullptr, rank == 0);
      if (some != nullptr) {
        EXPECT_EQ(sumOnce(some, rank % 2 == 1 ? ranks / 2 : (ranks - 1) / 2, 3000), ok) << lastError();
        EXPECT_EQ(ncclCommDestroy(some), ok);
      }
      int gone = ranks - 1;
      ncclComm_t rest = nullptr;
      if (rank != gone) {
        ASSERT_EQ(ncclCommShrink(comm, &gone, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT), ok) << lastError();
        EXPECT_EQ(sumOnce(rest, ranks - 1, 3000), ok) << lastError();
      }
      EXPECT_EQ(sumOnce(comm, ranks), ok) << "the parent is as it was: " << lastError();
      if (rank % 2 == 0) {
        EXPECT_EQ(ncclCommDestroy(comm), ok);
      }
      EXPECT_EQ(sumOnce(all, ranks, 50000), ok) << lastError();
      if (rest != nullptr) {
        EXPECT_EQ(sumOnce(rest, ranks - 1), ok) << lastError();
        EXPECT_EQ(ncclCommFinalize(rest), ok);
        EXPECT_EQ(ncclCommDestroy(rest), ok);
      }
      if (rank % 2 == 1) {
        EXPECT_EQ(ncclCommDestroy(comm), ok);
      }
      EXPECT_EQ(ncclCommDestroy(all), ok);
    });
  });
  children.expectAllWell();
}

/// One rank waits in a call that nobody else makes; the others leave it and its call behind.
TEST_P(Hosts, ShrinkEndsWorkInFlight) {
  const Layout& layout = GetParam();
  const int ranks = layout.ranks();
  ProcessRanks children(layout.processes(), [&](Self& self) {
    runRanks(self, layout, [&](const HostRank& here) {
      const auto [rank, comm, meet] = here;
      EXPECT_EQ(sumOnce(comm, ranks), ok) << lastError();
      meet(1);  // what ends the next call may reach who is not yet through with this one
      int gone = ranks - 1;
      if (rank == gone) {
        EXPECT_EQ(sumUntilError(comm, 100000), ncclRemoteError) << lastError();
        EXPECT_TRUE(mentions(lastError(), {"shrinks the communicator"}));
      } else {
        ncclComm_t child = nullptr;
        ASSERT_EQ(ncclCommShrink(comm, &gone, 1, &child, nullptr, NCCL_SHRINK_ABORT), ok) << lastError();
        EXPECT_EQ(sumOnce(child, ranks - 1, 50000), ok) << lastError();
        EXPECT_EQ(ncclCommDestroy(child), ok);
      }
      EXPECT_EQ(ncclCommDestroy(comm), ok) << lastError();
    });
  });
  children.expectAllWell();
}

/// The last data of a call are still under way when the ranks end.
TEST_P(Hosts, WhatWasSentArrivesAlthoughItsSenderHasEnded) {
  const Layout& layout = GetParam();
  ProcessRanks children(layout.processes(), [&](Self& self) {
    runRanks(self, layout, [&](const HostRank& here) {
      const auto [rank, comm, meet] = here;
      constexpr size_t kCounts[] = {3, 20};  // a sender may leave them in its pipe
      const int last = layout.ranks() - 1;
      if (rank == last) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      for (const size_t count : kCounts) {
        if (rank == last) {
          Ints got(count);
          EXPECT_EQ(ncclRecv(got.data(), count, ncclInt, 0, comm, nullptr), ok) << lastError();
          EXPECT_TRUE(got == gives(0, count));
        } else if (rank == 0) {
          EXPECT_EQ(ncclSend(gives(0, count).data(), count, ncclInt, last, comm, nullptr), ok) << lastError();
        }
      }
      EXPECT_EQ(ncclCommDestroy(comm), ok) << lastError();
    });
  });
  children.expectAllWell();
}

INSTANTIATE_TEST_SUITE_P(Layouts, Hosts, testing::Values(kTwoOfOne, kTwoOfTwo, kUneven, kInTurns, kThreads),
                         [](const auto& layout) { return layout.param.name; });

// ---- Lives ----------------------------------------------------------------------------------------------------------------

/// Asks until it is complete.
ncclResult_t settle(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ok);
  return state;
}
bool begun(ncclResult_t result) { return result == ok || result == ncclInProgress; }

TEST(HostsLife, NonBlockingRanksAreAskedUntilTheyAreThere) {
  ProcessRanks children(3, [](Self& self) {
    playHost(self.index() / 2);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    ASSERT_TRUE(begun(ncclCommInitRankConfig(&comm, 3, self.id(), self.index(), &config))) << lastError();
    ASSERT_EQ(settle(comm), ok) << lastError();
    Ints values(100000, self.index());
    ASSERT_TRUE(begun(ncclAllReduce(values.data(), values.data(), values.size(), ncclInt, ncclSum, comm, nullptr))) << lastError();
    ASSERT_EQ(settle(comm), ok) << lastError();
    EXPECT_TRUE(values == Ints(100000, 3));
    ncclComm_t child = nullptr;
    ASSERT_TRUE(begun(ncclCommSplit(comm, 0, self.index(), &child, &config))) << lastError();
    ASSERT_EQ(settle(comm), ok);
    ASSERT_NE(child, nullptr);
    ASSERT_EQ(settle(child), ok);
    for (ncclComm_t ending : {child, comm}) {
      ASSERT_TRUE(begun(ncclCommFinalize(ending))) << lastError();
      ASSERT_EQ(settle(ending), ok);
      EXPECT_EQ(ncclCommDestroy(ending), ok);
    }
  });
  children.expectAllWell();
}

/// One thread of each process drives two ranks in groups.
TEST(HostsLife, OneThreadDrivesRanksThatMeetOtherHosts) {
  ProcessRanks children(2, [](Self& self) {
    playHost(self.index());
    const ncclUniqueId id = self.id();
    ncclComm_t comms[2] = {};
    ASSERT_EQ(ncclGroupStart(), ok);
    for (int t = 0; t < 2; ++t) ASSERT_EQ(ncclCommInitRank(&comms[t], 4, id, t * 2 + self.index()), ok) << lastError();
    ASSERT_EQ(ncclGroupEnd(), ok) << lastError();
    Ints values[2] = {Ints(90000, 1), Ints(90000, 2)};
    ASSERT_EQ(ncclGroupStart(), ok);
    for (int t = 0; t < 2; ++t)
      ASSERT_EQ(ncclAllReduce(values[t].data(), values[t].data(), 90000, ncclInt, ncclSum, comms[t], nullptr), ok);
    ASSERT_EQ(ncclGroupEnd(), ok) << lastError();
    EXPECT_TRUE(values[0] == Ints(90000, 6) && values[1] == values[0]);
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  children.expectAllWell();
}

/// The ranks that split wait for the one that shrinks, which waits for one of them.
TEST(HostsLife, ASplitAgainstAShrinkIsRefused) {
  ProcessRanks children(3, [](Self& self) {
    playHost(self.index());
    ncclComm_t comm = joinAll(self);
    EXPECT_EQ(sumOnce(comm, 3), ok);
    self.meet(1);
    ncclComm_t child = nullptr;
    int excluded = 0;
    const ncclResult_t result = self.index() == 1 ? ncclCommShrink(comm, &excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT)
                                                  : ncclCommSplit(comm, 0, 0, &child, nullptr);
    EXPECT_EQ(result, ncclInvalidUsage);
    EXPECT_TRUE(mentions(lastError(), {"rank 2 called ncclCommSplit, rank 1 ncclCommShrink with 2 ranks"}));
    EXPECT_EQ(ncclCommAbort(comm), ok);
  });
  children.expectAllWell({}, 10);
}

TEST(HostsLife, ARevokedCommunicatorCanBeSplit) {
  ProcessRanks children(3, [](Self& self) {
    playHost(self.index() % 2);
    ncclComm_t comm = joinAll(self);
    EXPECT_EQ(sumOnce(comm, 3), ok);
    self.meet(1);
    if (self.index() != 2) {
      EXPECT_EQ(sumUntilError(comm, 100), ncclRemoteError);
      EXPECT_TRUE(mentions(lastError(), {"rank 2", "revoked"}));
    }
    EXPECT_EQ(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), ok) << lastError();
    ncclComm_t again = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, 0, self.index(), &again, nullptr), ok) << lastError();
    EXPECT_EQ(sumOnce(again, 3), ok) << lastError();
    EXPECT_EQ(ncclCommDestroy(comm), ok);
    EXPECT_EQ(ncclCommDestroy(again), ok);
  });
  children.expectAllWell();
}

/// `live` again and again, in step; after some to warm up it costs nothing.
void expectNoGrowth(Self& self, int lives, const std::function<void()>& live) {
  for (int i = 0; i < lives / 10 + 2; ++i) live();
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
  EXPECT_LE(after.virtualKiB - before.virtualKiB, 16384 + 65536) << "malloc may reserve room of 64 MiB for one more thread";
#endif
  EXPECT_LE(after.sharedKiB - before.sharedKiB, 512);
}

TEST(HostsLife, HundredsOfSplitsCostNothing) {
  ProcessRanks children(3, [](Self& self) {
    playHost(self.index() / 2);
    ncclComm_t comm = joinAll(self);
    expectNoGrowth(self, 300, [&] {
      ncclComm_t child = nullptr;
      ASSERT_EQ(ncclCommSplit(comm, 0, self.index(), &child, nullptr), ok) << lastError();
      ASSERT_EQ(sumOnce(child, 3, 100), ok) << lastError();
      EXPECT_EQ(ncclCommDestroy(child), ok);
    });
    EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  children.expectAllWell({}, 60);
}

TEST(HostsLife, ManyInitsCostNothing) {
  ProcessRanks children(3, [](Self& self) {
    playHost(self.index() / 2);
    expectNoGrowth(self, 40, [&] {
      ncclComm_t comm = nullptr;
      ASSERT_EQ(ncclCommInitRank(&comm, 3, self.freshId(), self.index()), ok) << lastError();
      ASSERT_EQ(sumOnce(comm, 3, 100), ok) << lastError();
      EXPECT_EQ(ncclCommDestroy(comm), ok);
    });
  });
  children.expectAllWell({}, 60);
}

}  // namespace
}  // namespace tutti::faults::hosts_test
