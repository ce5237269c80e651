// Waits of kernels that last: what ends them, and when.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "conformance/gpu/faults.h"
#include "conformance/harness.h"

namespace tutti::conformance {
namespace {

using driver::cuda::CaptureMode;
using driver::cuda::Error;
using faults::kSlow;
using faults::Stopwatch;

void pause(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

/// Three ranks, one thread each, that have summed once: all that the same call needs is there.
class GpuWaits : public testing::Test {
 protected:
  static constexpr int kRanks = 3;
  static constexpr size_t kCount = 1000;
  using Body = std::function<void(int rank, ncclComm_t comm, const GpuInts& data)>;

  void run(const Body& body) {
    RankThreads threads(kRanks, "", [this](int rank) { return std::make_shared<UseGpu>(gpus, rank); });
    ASSERT_TRUE(threads.created());
    threads_ = &threads;
    threads.run([&](int rank, ncclComm_t comm) {
      const GpuInts data(kCount);
      ASSERT_EQ(sum(data, kCount, comm), ncclSuccess) << ncclGetLastError(comm);
      synchronize(gpus);
      threads.meet();
      body(rank, comm, data);
      threads.meet();
    });
  }
  void meet() { threads_->meet(); }
  bool isWaiting(cudaStream_t stream = nullptr) { return gpus.driver().streamQuery(stream) == Error::NotReady; }

  FakeGpus gpus{kRanks};

 private:
  RankThreads* threads_ = nullptr;
};

TEST_F(GpuWaits, EndByADeadlineThatIsSetMeanwhile) {
  run([&](int rank, ncclComm_t comm, const GpuInts& data) {
    if (rank == 0) {
      ASSERT_EQ(sum(data, kCount, comm), ncclSuccess);
      pause(50);
      EXPECT_TRUE(isWaiting());
      EXPECT_EQ(tuttiCommSetTimeout(comm, 200), ncclSuccess);
      const Stopwatch watch;
      synchronize(gpus);
      EXPECT_LT(watch.seconds(), kSlow);
    }
    EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclRemoteError);
  });
}

TEST_F(GpuWaits, GoOnWithoutTheDeadlineOfTheirLaunch) {
  const ScopedSetting limit("TUTTI_TIMEOUT_MS", "300");
  run([&](int rank, ncclComm_t comm, const GpuInts& data) {
    EXPECT_EQ(tuttiCommSetTimeout(comm, 0), ncclSuccess);
    if (rank != 0) pause(600);
    ASSERT_EQ(sum(data, kCount, comm), ncclSuccess) << ncclGetLastError(comm);
    synchronize(gpus);
    EXPECT_EQ(data.data()[0], kRanks * kRanks);
    ncclResult_t state = ncclInternalError;
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    EXPECT_EQ(state, ncclSuccess) << ncclGetLastError(comm);
  });
}

TEST_F(GpuWaits, HaveTheDeadlineOfTheirOwnRank) {
  run([&](int rank, ncclComm_t comm, const GpuInts& data) {
    const ncclResult_t called = rank == 2 ? tuttiCommSetTimeout(comm, 1) : sum(data, kCount, comm);
    ASSERT_EQ(called, ncclSuccess);
    pause(300);
    EXPECT_EQ(isWaiting(), rank != 2);
    meet();
    EXPECT_EQ(tuttiCommSetTimeout(comm, rank == 1 ? 1 : 0), ncclSuccess);
    EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclRemoteError);
    EXPECT_NE(std::string(ncclGetLastError(comm)).find("rank 1"), std::string::npos) << ncclGetLastError(comm);
  });
}

TEST_F(GpuWaits, OfGraphsFollowTheDeadlineToo) {
  run([&](int rank, ncclComm_t comm, const GpuInts& data) {
    const cudaStream_t stream = gpus.makeStream();
    driver::cuda::Graph graph = nullptr;
    ASSERT_EQ(gpus.driver().beginCapture(stream, CaptureMode::ThreadLocal), Error::Success);
    ASSERT_EQ(sum(data, kCount, comm, stream), ncclSuccess) << ncclGetLastError(comm);
    ASSERT_EQ(gpus.driver().endCapture(stream, &graph), Error::Success);
    meet();
    EXPECT_EQ(tuttiCommSetTimeout(comm, 100), ncclSuccess);
    if (rank == 0) {
      ASSERT_EQ(gpus.driver().launchGraph(graph, stream), Error::Success);
      const Stopwatch watch;
      synchronize(gpus, stream);
      EXPECT_GE(watch.seconds(), 0.08);
    }
    EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclRemoteError);
    EXPECT_EQ(gpus.driver().destroyGraph(graph), Error::Success);
    EXPECT_EQ(gpus.driver().streamDestroy(stream), Error::Success);
  });
}

}  // namespace
}  // namespace tutti::conformance
