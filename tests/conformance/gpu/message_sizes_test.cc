// Messages whose two sides differ, and those that must not be taken for such: compared on the host when they are launched.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "conformance/gpu/faults.h"
#include "conformance/harness.h"

namespace tutti::conformance::message_sizes_test {
namespace {

using driver::cuda::CaptureMode;
using driver::cuda::Error;
using driver::cuda::Graph;
using faults::kSlow;
using faults::Stopwatch;

/// Two ranks, one thread each.
class GpuMessageSizes : public testing::Test {
 protected:
  static constexpr size_t kCount = 300'000;  // on other pipes than small ones
  using Body = std::function<void(int rank, ncclComm_t comm, const GpuInts& data)>;

  void run(const Body& body) {
    RankThreads threads(2, "", [this](int rank) { return std::make_shared<UseGpu>(gpus, rank); });
    ASSERT_TRUE(threads.created());
    threads_ = &threads;
    threads.run([&](int rank, ncclComm_t comm) {
      const GpuInts data(kCount);
      body(rank, comm, data);
      synchronize(gpus);  // what ended by an error may be about to
      threads.meet();
    });
  }
  void meet() { threads_->meet(); }

  /// From rank 0 to rank 1, or back.
  static ncclResult_t pass(int rank, ncclComm_t comm, const GpuInts& data, size_t count, bool isBack = false,
                           cudaStream_t stream = nullptr) {
    return (rank == 0) != isBack ? ncclSend(data.data(), count, ncclInt, 1 - rank, comm, stream)
                                 : ncclRecv(data.data(), count, ncclInt, 1 - rank, comm, stream);
  }
  void passAll(int rank, ncclComm_t comm, const GpuInts& data, const std::vector<size_t>& counts) {
    for (const size_t count : counts) ASSERT_EQ(pass(rank, comm, data, count), ncclSuccess) << ncclGetLastError(comm);
    synchronize(gpus);
    ncclResult_t state = ncclInternalError;
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    EXPECT_EQ(state, ncclSuccess) << ncclGetLastError(comm);
  }
  void expectRefused(ncclComm_t comm, const std::string& sent, const std::string& received) {
    EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclInvalidUsage);
    const std::string text = ncclGetLastError(comm);
    for (const std::string& words :
         {"rank 0 called Send #" + sent + " bytes to rank 1", "rank 1 called Recv #" + received + " bytes from rank 0"})
      EXPECT_NE(text.find(words), std::string::npos) << "no '" << words << "' in " << text;
  }

  FakeGpus gpus{2};

 private:
  RankThreads* threads_ = nullptr;
};

struct Sizes {
  size_t sent;
  size_t received;
};

class GpuMessagesThatDiffer : public GpuMessageSizes, public testing::WithParamInterface<Sizes> {};

TEST_P(GpuMessagesThatDiffer, AreInvalidUsageOnBothRanks) {
  const auto [sent, received] = GetParam();
  run([&](int rank, ncclComm_t comm, const GpuInts& data) {
    passAll(rank, comm, data, {sent, received, sent});
    const ncclResult_t called = pass(rank, comm, data, rank == 0 ? sent : received);
    EXPECT_TRUE(called == ncclSuccess || called == ncclInvalidUsage) << called << ": " << ncclGetLastError(comm);
    expectRefused(comm, "3 of " + std::to_string(4 * sent), "3 of " + std::to_string(4 * received));
  });
}

// They need different pipes, which neither would ever see the other's end of.
TEST_P(GpuMessagesThatDiffer, AreInvalidUsageAlsoInTheFirstCall) {
  const auto [sent, received] = GetParam();
  run([&](int rank, ncclComm_t comm, const GpuInts& data) {
    const ncclResult_t called = pass(rank, comm, data, rank == 0 ? sent : received);
    EXPECT_TRUE(called == ncclSuccess || called == ncclInvalidUsage) << called << ": " << ncclGetLastError(comm);
    expectRefused(comm, "0 of " + std::to_string(4 * sent), "0 of " + std::to_string(4 * received));
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, GpuMessagesThatDiffer,
                         testing::Values(Sizes{10, 20}, Sizes{20, 10}, Sizes{10, 300'000}, Sizes{300'000, 10}, Sizes{200'000, 300'000},
                                         Sizes{0, 10}),
                         [](const auto& param) { return std::to_string(param.param.sent) + "to" + std::to_string(param.param.received); });

TEST_F(GpuMessageSizes, ThatDifferEndAKernelThatWaits) {
  run([&](int rank, ncclComm_t comm, const GpuInts& data) {
    passAll(rank, comm, data, {1000, 1001});
    meet();
    const Stopwatch watch;
    if (rank == 1) {
      ASSERT_EQ(pass(rank, comm, data, 1000), ncclSuccess) << ncclGetLastError(comm);
      synchronize(gpus);
      EXPECT_GT(watch.seconds(), 0.05);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      EXPECT_EQ(pass(rank, comm, data, 1001), ncclInvalidUsage);
    }
    EXPECT_LT(watch.seconds(), kSlow);
    expectRefused(comm, "2 of 4004", "2 of 4000");
    char verdict[4096] = {};
    EXPECT_EQ(tuttiCommGetVerdict(comm, verdict, sizeof verdict, nullptr), ncclSuccess);
    for (const char* const words : {R"("kind":"mismatch")", R"("operation":"Send","sequence":2,"count":4004)",
                                    R"("operation":"Recv","sequence":2,"count":4000)"})
      EXPECT_NE(std::string(verdict).find(words), std::string::npos) << words << " in " << verdict;
  });
}

// As on host devices: bytes count.
TEST_F(GpuMessageSizes, OfOtherTypesAreEqual) {
  run([&](int rank, ncclComm_t comm, const GpuInts& data) {
    for (int i = 0; i < 1000; ++i) data.data()[i] = rank == 0 ? i : 0;
    ASSERT_EQ(rank == 0 ? ncclSend(data.data(), 1000, ncclInt, 1, comm, nullptr) : ncclRecv(data.data(), 4000, ncclInt8, 0, comm, nullptr),
              ncclSuccess)
        << ncclGetLastError(comm);
    synchronize(gpus);
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(data.data()[i], i);
  });
}

TEST_F(GpuMessageSizes, OfARankFarAheadAreNotMistaken) {
  std::vector<size_t> counts;
  for (size_t k = 0; k < 400; ++k) counts.push_back(1 + k % 7);
  run([&](int rank, ncclComm_t comm, const GpuInts& data) {
    passAll(rank, comm, data, {1, 2, 3, 4, 5, 6, 7});  // so that launches need nothing of the peer
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    passAll(rank, comm, data, counts);
    ASSERT_EQ(pass(rank, comm, data, 5, true), ncclSuccess) << ncclGetLastError(comm);
  });
}

// Launches of a group go by kernel and distance; the k-th of a pair is the k-th that the program called.
TEST_F(GpuMessageSizes, OfAGroupCountInTheOrderOfTheCalls) {
  run([&](int rank, ncclComm_t comm, const GpuInts& data) {
    for (int round = 0; round < 3; ++round) {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      for (const size_t count : {size_t{200'000}, size_t{10}, size_t{100'000}, size_t{0}}) {
        ASSERT_EQ(pass(rank, comm, data, count, rank == 1), ncclSuccess);
        ASSERT_EQ(pass(rank, comm, data, count, rank == 0), ncclSuccess);
      }
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(comm);
      passAll(rank, comm, data, {10, 200'000});
    }
  });
}

/// Calls of a rank, some of which are in a graph that is launched twice.
TEST_F(GpuMessageSizes, OfGraphsAreLeftOut) {
  for (const int capturing : {0, 1}) {
    run([&](int rank, ncclComm_t comm, const GpuInts& data) {
      const cudaStream_t stream = gpus.makeStream();
      passAll(rank, comm, data, {1, 2, 3, 4});
      if (rank == capturing) {
        Graph graph = nullptr;
        ASSERT_EQ(gpus.driver().beginCapture(stream, CaptureMode::ThreadLocal), Error::Success);
        ASSERT_EQ(pass(rank, comm, data, 2, false, stream), ncclSuccess) << ncclGetLastError(comm);
        ASSERT_EQ(gpus.driver().endCapture(stream, &graph), Error::Success);
        for (int k = 0; k < 2; ++k) ASSERT_EQ(gpus.driver().launchGraph(graph, stream), Error::Success);
        synchronize(gpus, stream);
        ASSERT_EQ(gpus.driver().destroyGraph(graph), Error::Success);
        passAll(rank, comm, data, {3, 4, 1});
      } else {
        passAll(rank, comm, data, {2, 2, 3, 4, 1});
      }
      // The other way nothing was captured.
      meet();
      (void)pass(rank, comm, data, rank == 0 ? 5 : 6, true);
      EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclInvalidUsage);
      EXPECT_EQ(gpus.driver().streamDestroy(stream), Error::Success);
    });
  }
}

TEST_F(GpuMessageSizes, OfOneThreadAreComparedToo) {
  std::vector<ncclComm_t> comms(2);
  ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
  std::vector<std::unique_ptr<GpuInts>> data;
  for (int r = 0; r < 2; ++r) {
    const UseGpu use(gpus, r);
    data.push_back(std::make_unique<GpuInts>(100));
  }
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int r = 0; r < 2; ++r)
    EXPECT_EQ(pass(r, comms[static_cast<size_t>(r)], *data[static_cast<size_t>(r)], r == 0 ? 50 : 60), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  for (const ncclComm_t comm : comms) {
    expectRefused(comm, "0 of 200", "0 of 240");
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  }
}

}  // namespace
}  // namespace tutti::conformance::message_sizes_test
