// Host streams: calls return at once, work runs in order, synchronize waits for it and reports its errors.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "conformance/harness.h"

namespace tutti::conformance::streams_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
using Clock = std::chrono::steady_clock;

class HostStream {
 public:
  HostStream() { EXPECT_EQ(tuttiStreamCreate(&stream_), ok) << ncclGetLastError(nullptr); }
  ~HostStream() { EXPECT_EQ(tuttiStreamDestroy(stream_), ok) << ncclGetLastError(nullptr); }
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;
  operator cudaStream_t() const { return stream_; }
  ncclResult_t wait() const { return tuttiStreamSynchronize(stream_); }

 private:
  cudaStream_t stream_ = nullptr;
};

TEST(Streams, CallsReturnBeforeThePeerComes) {
  RankThreads threads(2);
  threads.run([&](int rank, ncclComm_t comm) {
    const HostStream stream;
    int value = rank + 1;
    // The first use of a pattern may block the caller, as it does elsewhere; the second must not.
    ASSERT_EQ(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, stream), ok);
    ASSERT_EQ(stream.wait(), ok);
    EXPECT_EQ(value, 3);
    threads.meet();
    if (rank == 1) threads.meet();
    ASSERT_EQ(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, stream), ok);
    if (rank == 0) {
      EXPECT_EQ(tuttiStreamQuery(stream), ncclInProgress) << "the peer has not called yet";
      threads.meet();
    }
    ASSERT_EQ(stream.wait(), ok) << ncclGetLastError(comm);
    EXPECT_EQ(tuttiStreamQuery(stream), ok);
    EXPECT_EQ(value, 6);
  });
}

TEST(Streams, WorkOfAStreamRunsInOrder) {
  RankThreads threads(3);
  threads.run([&](int, ncclComm_t comm) {
    const HostStream stream;
    std::vector<int64_t> x(4000, 1);
    for (int i = 0; i < 30; ++i) ASSERT_EQ(ncclAllReduce(x.data(), x.data(), x.size(), ncclInt64, ncclSum, comm, stream), ok);
    ASSERT_EQ(stream.wait(), ok) << ncclGetLastError(comm);
    EXPECT_EQ(x, std::vector<int64_t>(4000, 205891132094649));  // 3 to the power of 30
  });
}

// One communicator on two streams: calls keep the order in which they were issued, so the second sees the first's result.
TEST(Streams, OneCommunicatorOnTwoStreamsKeepsIssueOrder) {
  RankThreads threads(2);
  threads.run([&](int, ncclComm_t comm) {
    const HostStream a, b;
    int64_t x = 1;
    for (int i = 0; i < 20; ++i) ASSERT_EQ(ncclAllReduce(&x, &x, 1, ncclInt64, ncclSum, comm, i % 2 == 0 ? a : b), ok);
    ASSERT_EQ(a.wait(), ok);
    ASSERT_EQ(b.wait(), ok);
    EXPECT_EQ(x, int64_t{1} << 20);
  });
}

// A group over two streams waits for both, and both wait for it.
TEST(Streams, AGroupJoinsItsStreams) {
  RankThreads threads(2);
  threads.run([&](int, ncclComm_t comm) {
    const HostStream a, b;
    for (int round = 0; round < 20; ++round) {
      std::vector<int> x(2000, 1), y(2000, 1);
      ASSERT_EQ(ncclAllReduce(x.data(), x.data(), x.size(), ncclInt, ncclSum, comm, a), ok);
      ASSERT_EQ(ncclAllReduce(y.data(), y.data(), y.size(), ncclInt, ncclSum, comm, b), ok);
      ASSERT_EQ(ncclGroupStart(), ok);
      ASSERT_EQ(ncclAllReduce(x.data(), x.data(), x.size(), ncclInt, ncclSum, comm, b), ok);
      ASSERT_EQ(ncclAllReduce(y.data(), y.data(), y.size(), ncclInt, ncclSum, comm, a), ok);
      ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(comm);
      ASSERT_EQ(a.wait(), ok);
      ASSERT_EQ(b.wait(), ok);
      EXPECT_EQ(x, std::vector<int>(2000, 4));
      EXPECT_EQ(y, std::vector<int>(2000, 4));
    }
  });
}

// The NULL stream of a communicator comes after what was issued before it on a stream.
TEST(Streams, NullStreamCallsComeAfterEarlierWork) {
  RankThreads threads(2);
  threads.run([&](int, ncclComm_t comm) {
    const HostStream stream;
    int x = 1;
    ASSERT_EQ(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, comm, stream), ok);
    ASSERT_EQ(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, comm, nullptr), ok) << ncclGetLastError(comm);
    EXPECT_EQ(x, 4);
    ASSERT_EQ(stream.wait(), ok);
  });
}

// Two communicators on two streams of one thread, with the peers' order swapped: nobody waits for anybody else's work.
TEST(Streams, CommunicatorsOnTheirOwnStreamsAreIndependent) {
  RankThreads threads(2);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ok);
  threads.run([&](int rank, ncclComm_t first) {
    ncclComm_t second = nullptr;
    ASSERT_EQ(ncclCommInitRank(&second, 2, id, rank), ok);
    {
      const HostStream a, b;
      for (int round = 0; round < 20; ++round) {
        std::vector<int> x(100000, 1), y(100000, 2);
        for (const int which : {rank, 1 - rank}) {
          std::vector<int>& data = which == 0 ? x : y;
          ASSERT_EQ(ncclAllReduce(data.data(), data.data(), data.size(), ncclInt, ncclSum, which == 0 ? first : second, which == 0 ? a : b),
                    ok)
              << ncclGetLastError(nullptr);
        }
        ASSERT_EQ(a.wait(), ok);
        ASSERT_EQ(b.wait(), ok);
        EXPECT_EQ(x, std::vector<int>(100000, 2));
        EXPECT_EQ(y, std::vector<int>(100000, 4));
      }
    }
    ASSERT_EQ(ncclCommDestroy(second), ok);
  });
}

TEST(Streams, OneThreadDrivesAllRanksOnStreams) {
  runWithin(60, "one thread, 4 ranks, 4 streams", [] {
    ncclComm_t comms[4];
    ASSERT_EQ(ncclCommInitAll(comms, 4, nullptr), ok);
    {
      const HostStream streams[4];
      std::vector<std::vector<float>> x(4, std::vector<float>(50000, 1));
      for (int round = 0; round < 5; ++round) {
        ASSERT_EQ(ncclGroupStart(), ok);
        for (size_t r = 0; r < 4; ++r)
          ASSERT_EQ(ncclAllReduce(x[r].data(), x[r].data(), x[r].size(), ncclFloat, ncclSum, comms[r], streams[r]), ok);
        ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(nullptr);
      }
      for (const HostStream& stream : streams) ASSERT_EQ(stream.wait(), ok);
      for (const auto& v : x) EXPECT_EQ(v, std::vector<float>(50000, 1024));
    }
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
}

// Streams of one thread used without a group, one rank each: asynchronous calls make a group unnecessary.
TEST(Streams, OneThreadWithoutAGroup) {
  runWithin(60, "one thread, 3 streams, no group", [] {
    ncclComm_t comms[3];
    ASSERT_EQ(ncclCommInitAll(comms, 3, nullptr), ok);
    {
      const HostStream streams[3];
      int x[3] = {1, 2, 3};
      for (int r = 0; r < 3; ++r) ASSERT_EQ(ncclAllReduce(&x[r], &x[r], 1, ncclInt, ncclSum, comms[r], streams[r]), ok);
      for (const HostStream& stream : streams) ASSERT_EQ(stream.wait(), ok);
      for (const int v : x) EXPECT_EQ(v, 6);
    }
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
}

// A scalar on the device is read when the operation runs, not when it is issued.
TEST(Streams, DeviceScalarsAreReadInStreamOrder) {
  RankThreads threads(2);
  threads.run([&](int rank, ncclComm_t comm) {
    const HostStream stream;
    int scalar = 1, one = 1, sum = 0;
    ncclRedOp_t op;
    ASSERT_EQ(ncclRedOpCreatePreMulSum(&op, &scalar, ncclInt, ncclScalarDevice, comm), ok);
    // The all-reduce before it writes the scalar.
    int five = 5 - rank;  // 5 + 4
    ASSERT_EQ(ncclAllReduce(&five, &scalar, 1, ncclInt, ncclSum, comm, stream), ok);
    ASSERT_EQ(ncclAllReduce(&one, &sum, 1, ncclInt, op, comm, stream), ok);
    ASSERT_EQ(ncclRedOpDestroy(op, comm), ok);
    ASSERT_EQ(stream.wait(), ok);
    EXPECT_EQ(sum, 18);
  });
}

}  // namespace
}  // namespace tutti::conformance::streams_test
