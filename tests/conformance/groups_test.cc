// Groups: what is called between start and end runs together, whatever it is and whoever drives it.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "conformance/harness.h"

namespace tutti::conformance::groups_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;

std::vector<int> filled(size_t count, int value) { return std::vector<int>(count, value); }

TEST(Group, SeveralCollectivesRunInOrder) {
  for (const int n : {1, 2, 5}) {
    RankThreads threads(n);
    threads.run([&](int rank, ncclComm_t comm) {
      std::vector<int> a = filled(1000, rank), b = filled(1000, 0), c = filled(static_cast<size_t>(1000 * n), -1), d = filled(7, rank * 10);
      ASSERT_EQ(ncclGroupStart(), ok);
      ASSERT_EQ(ncclAllReduce(a.data(), b.data(), 1000, ncclInt, ncclSum, comm, nullptr), ok);
      ASSERT_EQ(ncclAllGather(a.data(), c.data(), 1000, ncclInt, comm, nullptr), ok);
      ASSERT_EQ(ncclBcast(d.data(), 7, ncclInt, n - 1, comm, nullptr), ok);
      EXPECT_EQ(b, filled(1000, 0)) << "nothing runs before the end";
      ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(comm);
      EXPECT_EQ(b, filled(1000, n * (n - 1) / 2));
      EXPECT_EQ(d, filled(7, (n - 1) * 10));
      for (int r = 0; r < n; ++r) EXPECT_EQ(c[static_cast<size_t>(r * 1000 + 999)], r);
    });
  }
}

// The second call reads what the first wrote: calls of a group keep their order on a stream.
TEST(Group, LaterCallsSeeEarlierResults) {
  RankThreads threads(3);
  threads.run([&](int, ncclComm_t comm) {
    std::vector<int> x = filled(5000, 1);
    ASSERT_EQ(ncclGroupStart(), ok);
    for (int i = 0; i < 4; ++i) ASSERT_EQ(ncclAllReduce(x.data(), x.data(), x.size(), ncclInt, ncclSum, comm, nullptr), ok);
    ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(comm);
    EXPECT_EQ(x, filled(5000, 81));
  });
}

TEST(Group, OneThreadDrivesAllRanks) {
  for (const int n : {1, 2, 4, 9, 17}) {
    runWithin(60, "one thread, " + std::to_string(n) + " ranks", [&] {
      std::vector<ncclComm_t> comms(static_cast<size_t>(n));
      ASSERT_EQ(ncclCommInitAll(comms.data(), n, nullptr), ok) << ncclGetLastError(nullptr);
      for (const size_t count : {1ul, 100ul, 100000ul}) {
        std::vector<std::vector<int>> buffers;
        for (int r = 0; r < n; ++r) buffers.push_back(filled(count, r + 1));
        ASSERT_EQ(ncclGroupStart(), ok);
        for (size_t r = 0; r < comms.size(); ++r)
          ASSERT_EQ(ncclAllReduce(buffers[r].data(), buffers[r].data(), count, ncclInt, ncclSum, comms[r], nullptr), ok);
        ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(nullptr);
        for (const auto& b : buffers) EXPECT_EQ(b, filled(count, n * (n + 1) / 2));
      }
      for (size_t r = 0; r < comms.size(); ++r) {
        int value = -1;
        EXPECT_EQ(ncclCommUserRank(comms[r], &value), ok);
        EXPECT_EQ(value, static_cast<int>(r));
        EXPECT_EQ(ncclCommCount(comms[r], &value), ok);
        EXPECT_EQ(value, n);
        EXPECT_EQ(ncclCommCuDevice(comms[r], &value), ok);
        EXPECT_EQ(value, static_cast<int>(r));
      }
      for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ok);
    });
  }
}

TEST(Group, InitRankOfAllRanksByOneThread) {
  runWithin(30, "init of 4 ranks in a group", [] {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ok);
    ncclComm_t comms[4] = {};
    ASSERT_EQ(ncclGroupStart(), ok);
    for (int r = 0; r < 4; ++r) ASSERT_EQ(ncclCommInitRank(&comms[r], 4, id, r), ok) << ncclGetLastError(nullptr);
    ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(nullptr);
    for (ncclComm_t comm : comms) ASSERT_NE(comm, nullptr);
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
}

TEST(Group, CollectivesAndMessagesMix) {
  constexpr size_t kCount = 70000;
  for (const int n : {2, 3, 8}) {
    RankThreads threads(n);
    threads.run([&](int rank, ncclComm_t comm) {
      const int next = (rank + 1) % n, prev = (rank + n - 1) % n;
      std::vector<int> sum = filled(kCount, 1), out = filled(kCount, rank), in = filled(kCount, -1), root = filled(3, rank);
      ASSERT_EQ(ncclGroupStart(), ok);
      ASSERT_EQ(ncclSend(out.data(), kCount, ncclInt, next, comm, nullptr), ok);
      ASSERT_EQ(ncclAllReduce(sum.data(), sum.data(), kCount, ncclInt, ncclSum, comm, nullptr), ok);
      ASSERT_EQ(ncclRecv(in.data(), kCount, ncclInt, prev, comm, nullptr), ok);
      ASSERT_EQ(ncclBcast(root.data(), 3, ncclInt, 1, comm, nullptr), ok);
      ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(comm);
      EXPECT_EQ(in, filled(kCount, prev));
      EXPECT_EQ(sum, filled(kCount, n));
      EXPECT_EQ(root, filled(3, 1));
    });
  }
}

// Rank a sends (a + 1) * (b + 2) * 37 elements to rank b, itself included; some pairs exchange nothing.
TEST(Group, UnequalAllToAllIncludingOneself) {
  for (const int n : {1, 2, 3, 7}) {
    RankThreads threads(n);
    threads.run([&](int rank, ncclComm_t comm) {
      const auto sizeOfPair = [](int a, int b) { return (a + b) % 3 == 2 ? 0 : static_cast<size_t>((a + 1) * (b + 2) * 37); };
      std::vector<std::vector<int64_t>> out, in;
      for (int peer = 0; peer < n; ++peer) {
        out.emplace_back(sizeOfPair(rank, peer), rank * 1000 + peer);
        in.emplace_back(sizeOfPair(peer, rank), -1);
      }
      ASSERT_EQ(ncclGroupStart(), ok);
      for (int peer = 0; peer < n; ++peer) {
        const auto p = static_cast<size_t>(peer);
        ASSERT_EQ(ncclSend(out[p].data(), out[p].size(), ncclInt64, peer, comm, nullptr), ok) << ncclGetLastError(comm);
        ASSERT_EQ(ncclRecv(in[p].data(), in[p].size(), ncclInt64, peer, comm, nullptr), ok) << ncclGetLastError(comm);
      }
      ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(comm);
      for (int peer = 0; peer < n; ++peer)
        EXPECT_EQ(in[static_cast<size_t>(peer)], std::vector<int64_t>(sizeOfPair(peer, rank), peer * 1000 + rank));
    });
  }
}

// Several messages to one peer, in both directions, meet in the order in which each side calls them.
TEST(Group, MessagesOfAPairKeepTheirOrder) {
  RankThreads threads(2);
  threads.run([&](int rank, ncclComm_t comm) {
    constexpr int kMessages = 40;
    std::vector<std::vector<int>> out, in;
    for (int i = 0; i < kMessages; ++i) {
      out.push_back(filled(static_cast<size_t>(i * i * 5), i + 100 * rank));
      in.push_back(filled(static_cast<size_t>(i * i * 5), -1));
    }
    ASSERT_EQ(ncclGroupStart(), ok);
    for (size_t i = 0; i < kMessages; ++i) ASSERT_EQ(ncclRecv(in[i].data(), in[i].size(), ncclInt, 1 - rank, comm, nullptr), ok);
    for (size_t i = 0; i < kMessages; ++i) ASSERT_EQ(ncclSend(out[i].data(), out[i].size(), ncclInt, 1 - rank, comm, nullptr), ok);
    ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(comm);
    for (int i = 0; i < kMessages; ++i) EXPECT_EQ(in[static_cast<size_t>(i)], filled(static_cast<size_t>(i * i * 5), i + 100 * (1 - rank)));
  });
}

TEST(Group, LoneSendAndRecvMeet) {
  RankThreads threads(2);
  threads.run([&](int rank, ncclComm_t comm) {
    for (const size_t count : {0ul, 1ul, 1000ul, 3000000ul}) {
      std::vector<char> data(count, rank == 0 ? 'x' : '.');
      const ncclResult_t result =
          rank == 0 ? ncclSend(data.data(), count, ncclChar, 1, comm, nullptr) : ncclRecv(data.data(), count, ncclChar, 0, comm, nullptr);
      ASSERT_EQ(result, ok) << ncclGetLastError(comm);
      EXPECT_EQ(data, std::vector<char>(count, 'x'));
    }
  });
}

TEST(Group, EmptyMessagesPairWithEmptyMessages) {
  RankThreads threads(2);
  threads.run([&](int rank, ncclComm_t comm) {
    int value = rank;
    ASSERT_EQ(ncclGroupStart(), ok);
    if (rank == 0) {
      ASSERT_EQ(ncclSend(nullptr, 0, ncclInt, 1, comm, nullptr), ok) << ncclGetLastError(comm);
      ASSERT_EQ(ncclSend(&value, 1, ncclInt, 1, comm, nullptr), ok);
    } else {
      ASSERT_EQ(ncclRecv(nullptr, 0, ncclInt, 0, comm, nullptr), ok) << ncclGetLastError(comm);
      ASSERT_EQ(ncclRecv(&value, 1, ncclInt, 0, comm, nullptr), ok);
    }
    ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(comm);
    EXPECT_EQ(value, 0);
  });
}

TEST(Group, NestsAndRunsAtTheOutermostEnd) {
  RankThreads threads(2);
  threads.run([&](int, ncclComm_t comm) {
    int x = 1, y = 1;
    ASSERT_EQ(ncclGroupStart(), ok);
    ASSERT_EQ(ncclGroupStart(), ok);
    ASSERT_EQ(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, comm, nullptr), ok);
    ASSERT_EQ(ncclGroupEnd(), ok);
    EXPECT_EQ(x, 1) << "the inner end carries nothing out";
    ASSERT_EQ(ncclAllReduce(&y, &y, 1, ncclInt, ncclSum, comm, nullptr), ok);
    ASSERT_EQ(ncclGroupEnd(), ok);
    EXPECT_EQ(x + y, 4);
    ASSERT_EQ(ncclGroupStart(), ok);
    ASSERT_EQ(ncclGroupEnd(), ok) << "an empty group";
  });
}

// Two communicators over the same threads; every rank uses them in an order of its own, in one group.
TEST(Group, SeveralCommunicatorsInAnyOrder) {
  constexpr int kRanks = 4;
  RankThreads threads(kRanks);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ok);
  threads.run([&](int rank, ncclComm_t first) {
    ncclComm_t second = nullptr;
    ASSERT_EQ(ncclCommInitRank(&second, kRanks, id, kRanks - 1 - rank), ok) << ncclGetLastError(nullptr);
    for (int round = 0; round < 20; ++round) {
      std::vector<int> a = filled(30000, 1), b = filled(30000, 2);
      ASSERT_EQ(ncclGroupStart(), ok);
      for (const int which : {rank % 2, 1 - rank % 2}) {
        std::vector<int>& x = which == 0 ? a : b;
        ASSERT_EQ(ncclAllReduce(x.data(), x.data(), x.size(), ncclInt, ncclSum, which == 0 ? first : second, nullptr), ok);
      }
      ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(nullptr);
      EXPECT_EQ(a, filled(30000, kRanks));
      EXPECT_EQ(b, filled(30000, 2 * kRanks));
    }
    ASSERT_EQ(ncclCommDestroy(second), ok);
  });
}

// Threads of one process with communicators of their own do not disturb each other.
TEST(Group, ManyThreadsWithTheirOwnCommunicators) {
  runWithin(60, "8 threads with 3 ranks each", [] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([t] {
        ncclComm_t comms[3];
        ASSERT_EQ(ncclCommInitAll(comms, 3, nullptr), ok) << ncclGetLastError(nullptr);
        for (int round = 0; round < 50; ++round) {
          int values[3] = {t, round, 1};
          ASSERT_EQ(ncclGroupStart(), ok);
          for (int r = 0; r < 3; ++r) ASSERT_EQ(ncclAllReduce(&values[r], &values[r], 1, ncclInt, ncclSum, comms[r], nullptr), ok);
          ASSERT_EQ(ncclGroupEnd(), ok);
          for (const int v : values) EXPECT_EQ(v, t + round + 1);
        }
        for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ok);
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

}  // namespace
}  // namespace tutti::conformance::groups_test
