// Waits of kernels that last: what ends them, and when.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "conformance/gpu/faults.h"
#include "conformance/harness.h"
#include "observe/capture_log.h"

namespace tutti::conformance::waits_test {
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

  void run(const Body& body, const char* algorithms = "") {
    RankThreads threads(kRanks, algorithms, [this](int rank) { return std::make_shared<UseGpu>(gpus, rank); });
    ASSERT_TRUE(threads.created());
    threads_ = &threads;
    threads.run([&](int rank, ncclComm_t comm) {
      const GpuInts data(kCount);
      ASSERT_EQ(sum(data, kCount, comm), ncclSuccess) << ncclGetLastError(comm);
      synchronize(gpus);
      threads.meet();
      body(rank, comm, data);
      synchronize(gpus);  // what ended by an error may be about to
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

/// What a text has to have.
void expectWords(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << "no '" << word << "' in " << text;
}

std::string readVerdict(ncclComm_t comm) {
  std::string text(20'000, '\0');
  size_t needed = 0;
  EXPECT_EQ(tuttiCommGetVerdict(comm, text.data(), text.size(), &needed), ncclSuccess);
  return text.substr(0, needed - 1);
}

TEST_F(GpuWaits, PastTheirDeadlineNameTheCallAndWhoCame) {
  run([&](int rank, ncclComm_t comm, const GpuInts& data) {
    EXPECT_EQ(tuttiCommSetTimeout(comm, rank == 0 ? 100 : 0), ncclSuccess);
    if (rank != 2) {
      ASSERT_EQ(sum(data, 500, comm), ncclSuccess) << ncclGetLastError(comm);
      synchronize(gpus);
    }
    EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclRemoteError);
    expectWords(ncclGetLastError(comm),
                {"rank 0 has waited ", "which is past the deadline of 100 ms, in AllReduce #1 of 500 int32, sum: its "});
    expectWords(readVerdict(comm), {R"("kind":"deadline")", R"("rank":0,"waitedMs":)", R"("operation":"AllReduce","sequence":1,)",
                                    R"("arrived":[0,1],"missing":[2])", R"("suspects":[{"rank":2,)", R"("waits":"waits for)"});
  });
}

// Rank 1 has come to the call, but its stream is busy: rank 2 waits for it, and rank 0 for rank 2. Kernels that are played on a busy
// processor may tell of their waits too late, so it is tried more than once.
TEST_F(GpuWaits, PastTheirDeadlineTellWhereTheyEnd) {
  std::atomic<bool> isTold = false;
  const auto body = [&](int rank, ncclComm_t comm, const GpuInts& data) {
    const cudaStream_t stream = gpus.makeStream();
    ASSERT_EQ(sum(data, kCount, comm, stream), ncclSuccess) << ncclGetLastError(comm);
    synchronize(gpus, stream);
    EXPECT_EQ(tuttiCommSetTimeout(comm, rank == 0 ? 200 : 0), ncclSuccess);
    std::atomic<bool> isOver = false;
    if (rank == 1) {
      const auto waits = [&isOver] {
        while (!isOver) pause(1);
      };
      ASSERT_EQ(gpus.driver().enqueue(stream, waits), Error::Success);
    }
    meet();
    ASSERT_EQ(sum(data, kCount, comm, stream), ncclSuccess) << ncclGetLastError(comm);
    EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclRemoteError);
    expectWords(ncclGetLastError(comm), {"rank 0 has waited ", "in AllReduce #2 of 1000 int32, sum: its kernel waits for ", " rank 2 ("});
    const std::string verdict = readVerdict(comm);
    expectWords(verdict, {R"("arrived":[0,1,2],"missing":[],)"});
    if (verdict.find("; that of rank 2, where these waits end, waits for ") != std::string::npos) {
      expectWords(verdict, {" rank 1 (", R"("suspects":[{"rank":1,)"});
      isTold = true;
    }
    isOver = true;
    synchronize(gpus, stream);
    EXPECT_EQ(gpus.driver().streamDestroy(stream), Error::Success);
  };
  for (int tries = 0; tries < 20 && !isTold && !HasFailure(); ++tries) run(body, "ring");
  EXPECT_TRUE(isTold);
}

TEST_F(GpuWaits, PastTheirDeadlineNameAllCallsOfALaunch) {
  run([&](int rank, ncclComm_t comm, const GpuInts& data) {
    EXPECT_EQ(tuttiCommSetTimeout(comm, rank == 0 ? 100 : 0), ncclSuccess);
    for (const size_t count : {size_t{400}, size_t{600}}) {  // so that all that they need is there
      ASSERT_EQ(sum(data, count, comm), ncclSuccess) << ncclGetLastError(comm);
      synchronize(gpus);
    }
    meet();
    if (rank != 2) {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      for (const size_t count : {size_t{400}, size_t{600}}) ASSERT_EQ(sum(data, count, comm), ncclSuccess);
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(comm);
    }
    EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclRemoteError);
    expectWords(ncclGetLastError(comm), {"AllReduce #3 of 400 int32, sum and AllReduce #4 of 600 int32, sum: its kernel waits"});
  });
}

TEST_F(GpuWaits, OfMessagesPastTheirDeadlineNameTheTwoRanks) {
  run([&](int rank, ncclComm_t comm, const GpuInts& data) {
    for (int k = 0; k < 2; ++k) {
      if (rank == 1 && k == 0) {
        ASSERT_EQ(ncclSend(data.data(), kCount, ncclInt, 0, comm, nullptr), ncclSuccess) << ncclGetLastError(comm);
      } else if (rank == 0) {
        EXPECT_EQ(tuttiCommSetTimeout(comm, k == 0 ? 0 : 100), ncclSuccess);
        ASSERT_EQ(ncclRecv(data.data(), kCount, ncclInt, 1, comm, nullptr), ncclSuccess) << ncclGetLastError(comm);
      }
      synchronize(gpus);
      meet();
    }
    EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclRemoteError);
    expectWords(ncclGetLastError(comm), {"in Recv #1 of 4000 bytes from rank 1: its kernel waits for"});
    expectWords(readVerdict(comm), {R"("operation":"Recv","sequence":1)", R"("peer":1)", R"("arrived":[0],"missing":[1])"});
  });
}

// Rank 1 has come to the message, behind one that never ends.
TEST_F(GpuWaits, OfMessagesPastTheirDeadlineTellWhetherTheOtherHasCome) {
  run([&](int rank, ncclComm_t comm, const GpuInts& data) {
    const auto pass = [&](int from, int to) {
      const ncclResult_t called = rank == from ? ncclSend(data.data(), kCount, ncclInt, to, comm, nullptr)
                                  : rank == to ? ncclRecv(data.data(), kCount, ncclInt, from, comm, nullptr)
                                               : ncclSuccess;
      ASSERT_EQ(called, ncclSuccess) << ncclGetLastError(comm);
    };
    pass(2, 1);
    pass(1, 0);
    synchronize(gpus);
    meet();
    if (rank == 1) pass(2, 1);
    if (rank == 1) pass(1, 0);
    meet();
    EXPECT_EQ(tuttiCommSetTimeout(comm, rank == 0 ? 100 : 0), ncclSuccess);
    if (rank == 0) pass(1, 0);
    EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclRemoteError);
    expectWords(readVerdict(comm), {R"("operation":"Recv","sequence":1)", R"("peer":1)", R"("arrived":[0,1],"missing":[])"});
  });
}

TEST_F(GpuWaits, OfGraphsPastTheirDeadlineNameTheCallToo) {
  run([&](int rank, ncclComm_t comm, const GpuInts& data) {
    const cudaStream_t stream = gpus.makeStream();
    driver::cuda::Graph graph = nullptr;
    ASSERT_EQ(gpus.driver().beginCapture(stream, CaptureMode::ThreadLocal), Error::Success);
    ASSERT_EQ(sum(data, 777, comm, stream), ncclSuccess) << ncclGetLastError(comm);
    ASSERT_EQ(gpus.driver().endCapture(stream, &graph), Error::Success);
    driver::cuda::Graph other = nullptr;
    const auto sumOften = [&] {  // more than are remembered; the signature of a collective tells of it all the same
      for (int k = 0; k < 600; ++k) ASSERT_EQ(sum(data, kCount, comm, stream), ncclSuccess) << ncclGetLastError(comm);
    };
    ASSERT_EQ(gpus.driver().beginCapture(stream, CaptureMode::ThreadLocal), Error::Success);
    sumOften();
    ASSERT_EQ(gpus.driver().endCapture(stream, &other), Error::Success);
    sumOften();
    EXPECT_EQ(gpus.driver().destroyGraph(other), Error::Success);
    synchronize(gpus, stream);
    meet();
    EXPECT_EQ(tuttiCommSetTimeout(comm, 100), ncclSuccess);
    if (rank == 0) {
      ASSERT_EQ(gpus.driver().launchGraph(graph, stream), Error::Success);
    }
    EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclRemoteError);
    expectWords(ncclGetLastError(comm), {"in AllReduce #1 of 777 int32, sum: its kernel waits for"});
    // All have captured the call, which is not to say that they have launched it.
    const std::string verdict = readVerdict(comm);
    expectWords(verdict, {R"("arrived":[],"missing":[],"suspects":[{"rank":)"});
    EXPECT_EQ(verdict.find(R"("suspects":[{"rank":0)"), std::string::npos) << verdict;
    synchronize(gpus, stream);
    EXPECT_EQ(gpus.driver().destroyGraph(graph), Error::Success);
    EXPECT_EQ(gpus.driver().streamDestroy(stream), Error::Success);
  });
}

// One warning for each wait, from whoever of the host looks, however often it does.
TEST_F(GpuWaits, ThatLastAreExplainedOnce) {
  const ScopedSetting soon("TUTTI_WARN_MS", "200");
  const observe::play::CaptureLog log;
  run([&](int rank, ncclComm_t comm, const GpuInts& data) {
    for (const size_t count : {size_t{500}, size_t{700}}) {
      if (rank == 1) pause(500);
      ASSERT_EQ(sum(data, count, comm), ncclSuccess) << ncclGetLastError(comm);
      ncclResult_t state = ncclSuccess;
      for (const Stopwatch watch; watch.seconds() < 0.2 || isWaiting();) {
        ASSERT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
        ASSERT_EQ(state, ncclSuccess) << ncclGetLastError(comm);
        pause(1);
      }
      synchronize(gpus);
      meet();
    }
  });
  EXPECT_EQ(log.count("rank 0 has waited for"), 2u) << log.text();
  for (const char* const call : {"AllReduce #1 of 500 int32, sum", "AllReduce #2 of 700 int32, sum"})
    expectWords(log.text(), {std::string("ms in ") + call + ": its kernel waits for"});
}

// Nobody asks meanwhile: the next call, or the end of the communicator, tells of it.
TEST_F(GpuWaits, ThatLastedAreToldByTheNextCall) {
  const ScopedSetting soon("TUTTI_WARN_MS", "40");
  const observe::play::CaptureLog log;
  run([&](int rank, ncclComm_t comm, const GpuInts& data) {
    if (rank == 1) pause(200);
    ASSERT_EQ(sum(data, 500, comm), ncclSuccess) << ncclGetLastError(comm);
    synchronize(gpus);
    meet();
    EXPECT_EQ(log.count("rank 0 has waited for"), 0u) << log.text();
    meet();
    ASSERT_EQ(sum(data, 500, comm), ncclSuccess) << ncclGetLastError(comm);
    meet();
    EXPECT_EQ(log.count("rank 0 has waited for"), 1u) << log.text();
  });
}

TEST_F(GpuWaits, InCallsThatDifferHoldBothInTheVerdict) {
  run([&](int rank, ncclComm_t comm, const GpuInts& data) {
    (void)ncclGroupStart();
    (void)sum(data, 400, comm);  // an error where the others are faster
    (void)sum(data, rank == 0 ? 600 : 700, comm);
    (void)ncclGroupEnd();
    EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclInvalidUsage);
    expectWords(ncclGetLastError(comm), {"rank 0 called AllReduce #2 of 600 int32, sum", "AllReduce #2 of 700 int32, sum"});
    synchronize(gpus);
    meet();
    expectWords(readVerdict(comm), {R"("kind":"mismatch")", R"("sequence":2,"count":600)", R"("sequence":2,"count":700)"});
  });
}

}  // namespace
}  // namespace tutti::conformance::waits_test
