// What goes wrong on GPUs: kernels that wait for ranks that never come, calls that do not agree, memory that is not there, driver calls
// that fail; and that nothing is left afterwards.
#include "conformance/gpu/faults.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "conformance/harness.h"

namespace tutti::conformance::faults_test {
namespace {

using faults::kSlow;
using faults::Stopwatch;

/// Two ranks, one thread each, that have summed once: all that the same call needs is there.
class GpuFaults : public testing::Test {
 protected:
  static constexpr int kRanks = 2;

  void make(const std::string& algorithms = "") {
    threads_ = std::make_unique<RankThreads>(kRanks, algorithms, [this](int rank) { return std::make_shared<UseGpu>(gpus, rank); });
    ASSERT_TRUE(threads_->created());
  }
  void warmUp(size_t count = 1000) {
    threads_->run([&](int, ncclComm_t comm) {
      const GpuInts data(count);
      ASSERT_EQ(sum(data, count, comm), ncclSuccess) << ncclGetLastError(comm);
      synchronize(gpus);
      ASSERT_EQ(data.data()[0], kRanks);
    });
  }
  RankThreads& threads() { return *threads_; }

  FakeGpus gpus{kRanks};

 private:
  std::unique_ptr<RankThreads> threads_;
};

TEST_F(GpuFaults, ADeadlineNamesWhoIsMissing) {
  const ScopedSetting limit("TUTTI_TIMEOUT_MS", "300");
  make();
  warmUp();
  threads().run([&](int rank, ncclComm_t comm) {
    const GpuInts data(1000);
    if (rank == 0) {
      const Stopwatch watch;
      ASSERT_EQ(sum(data, 1000, comm), ncclSuccess);
      synchronize(gpus);
      EXPECT_GE(watch.seconds(), 0.25);
      EXPECT_LT(watch.seconds(), 2 * kSlow);
    }
    EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclRemoteError);
    EXPECT_NE(std::string(ncclGetLastError(comm)).find("rank 1"), std::string::npos) << ncclGetLastError(comm);
    threads().meet();
  });
}

TEST_F(GpuFaults, ADeadlineEndsTheWaitForAConnection) {
  const ScopedSetting limit("TUTTI_TIMEOUT_MS", "300");
  make();
  threads().run([&](int rank, ncclComm_t comm) {
    const GpuInts data(1000);
    if (rank == 0) {
      EXPECT_EQ(sum(data, 1000, comm), ncclRemoteError);
      EXPECT_NE(std::string(ncclGetLastError(comm)).find("rank 1"), std::string::npos) << ncclGetLastError(comm);
    }
    EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclRemoteError);
    threads().meet();
  });
}

TEST(GpuAbort, EndsAKernelThatWaits) {
  FakeGpus gpus(2);
  std::vector<ncclComm_t> comms(2);
  ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
  std::vector<std::unique_ptr<GpuInts>> data;
  for (int r = 0; r < 2; ++r) {
    const UseGpu use(gpus, r);
    data.push_back(std::make_unique<GpuInts>(100'000));
  }
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (size_t r = 0; r < 2; ++r) ASSERT_EQ(sum(*data[r], 100'000, comms[r]), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  ASSERT_EQ(sum(*data[1], 100'000, comms[1]), ncclSuccess);
  {
    const UseGpu use(gpus, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(gpus.driver().streamQuery(nullptr), driver::cuda::Error::NotReady);
    const Stopwatch watch;
    EXPECT_EQ(ncclCommAbort(comms[1]), ncclSuccess);
    EXPECT_LT(watch.seconds(), kSlow);
    EXPECT_EQ(gpus.driver().streamQuery(nullptr), driver::cuda::Error::Success);
  }
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(comms[0], &state), ncclSuccess);
  EXPECT_EQ(state, ncclRemoteError);
  EXPECT_EQ(ncclCommAbort(comms[0]), ncclSuccess);
}

TEST(GpuAbort, EndsAWaitForAConnection) {
  FakeGpus gpus(2);
  std::vector<ncclComm_t> comms(2);
  ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
  std::thread waiting([&] {
    const UseGpu use(gpus, 0);
    const GpuInts data(1000);
    EXPECT_EQ(sum(data, 1000, comms[0]), ncclRemoteError);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const Stopwatch watch;
  EXPECT_EQ(ncclCommAbort(comms[1]), ncclSuccess);
  waiting.join();
  EXPECT_LT(watch.seconds(), kSlow);
  EXPECT_EQ(ncclCommAbort(comms[0]), ncclSuccess);
}

/// What each rank calls where they do not agree.
struct Disagreement {
  const char* name;
  const char* algorithms;
  std::function<ncclResult_t(const GpuInts&, int rank, ncclComm_t)> call;
};

const Disagreement kDisagreements[] = {
    {"count", "", [](const GpuInts& d, int rank, ncclComm_t comm) { return sum(d, rank == 0 ? 1000 : 1001, comm); }},
    {"farCount", "", [](const GpuInts& d, int rank, ncclComm_t comm) { return sum(d, rank == 0 ? 10 : 1'000'000, comm); }},
    {"operation", "",
     [](const GpuInts& d, int rank, ncclComm_t comm) {
       return ncclAllReduce(d.data(), d.data(), 1000, ncclInt, rank == 0 ? ncclSum : ncclMax, comm, nullptr);
     }},
    {"type", "",
     [](const GpuInts& d, int rank, ncclComm_t comm) {
       return ncclAllReduce(d.data(), d.data(), 1000, rank == 0 ? ncclInt : ncclFloat, ncclSum, comm, nullptr);
     }},
    {"root", "",
     [](const GpuInts& d, int rank, ncclComm_t comm) { return ncclBroadcast(d.data(), d.data(), 1000, ncclInt, rank, comm, nullptr); }},
    {"collective", "",
     [](const GpuInts& d, int rank, ncclComm_t comm) {
       return rank == 0 ? sum(d, 1000, comm) : ncclBroadcast(d.data(), d.data(), 1000, ncclInt, 0, comm, nullptr);
     }},
};

class GpuMismatch : public GpuFaults, public testing::WithParamInterface<Disagreement> {};

TEST_P(GpuMismatch, IsInvalidUsageOnAllRanks) {
  make(GetParam().algorithms);
  for (const size_t count : {10, 1000, 1001, 1'000'000}) warmUp(count);
  threads().run([&](int rank, ncclComm_t comm) {
    const GpuInts data(1'000'000);
    const ncclResult_t called = GetParam().call(data, rank, comm);
    EXPECT_TRUE(called == ncclSuccess || called == ncclInvalidUsage) << called << ": " << ncclGetLastError(comm);
    EXPECT_EQ(awaitError(comm, 3 * kSlow), ncclInvalidUsage);
    synchronize(gpus);
    threads().meet();
  });
}

// Before any connection is there, ranks wait for them and not yet in kernels.
TEST_P(GpuMismatch, IsInvalidUsageAlsoInTheFirstCall) {
  make(GetParam().algorithms);
  threads().run([&](int rank, ncclComm_t comm) {
    const GpuInts data(1'000'000);
    const ncclResult_t called = GetParam().call(data, rank, comm);
    EXPECT_TRUE(called == ncclSuccess || called == ncclInvalidUsage) << called << ": " << ncclGetLastError(comm);
    EXPECT_EQ(awaitError(comm, 3 * kSlow), ncclInvalidUsage);
    synchronize(gpus);
    threads().meet();
  });
}

INSTANTIATE_TEST_SUITE_P(Calls, GpuMismatch, testing::ValuesIn(kDisagreements), [](const auto& param) { return param.param.name; });

ncclResult_t sendTo(const GpuInts& d, size_t count, int peer, ncclComm_t comm) {
  return ncclSend(d.data(), count, ncclInt, peer, comm, nullptr);
}
ncclResult_t receiveFrom(const GpuInts& d, size_t count, int peer, ncclComm_t comm) {
  return ncclRecv(d.data(), count, ncclInt, peer, comm, nullptr);
}

/// Calls that never meet.
struct Hopeless {
  const char* name;
  int ranks;
  size_t count;
  std::function<ncclResult_t(const GpuInts&, int rank, ncclComm_t)> call;
  std::vector<std::string> parts;  ///< of what every rank is told
};

constexpr size_t kMuch = 8'000'000;  // more than pipes hold

const Hopeless kHopeless[] = {
    {"sendAgainstCollective",
     2,
     kMuch,
     [](const GpuInts& d, int rank, ncclComm_t comm) { return rank == 0 ? sendTo(d, kMuch, 1, comm) : sum(d, 1000, comm); },
     {"Send #", "AllReduce #"}},
    {"receiveAgainstCollective",
     2,
     10,
     [](const GpuInts& d, int rank, ncclComm_t comm) { return rank == 0 ? receiveFrom(d, 10, 1, comm) : sum(d, 1000, comm); },
     {"Recv #", "AllReduce #"}},
    {"receiveAgainstReceive",
     2,
     10,
     [](const GpuInts& d, int rank, ncclComm_t comm) { return receiveFrom(d, 10, 1 - rank, comm); },
     {"Recv #"}},
    {"sendAgainstSend", 2, kMuch, [](const GpuInts& d, int rank, ncclComm_t comm) { return sendTo(d, kMuch, 1 - rank, comm); }, {"Send #"}},
    {"sendsInACircle",
     3,
     kMuch,
     [](const GpuInts& d, int rank, ncclComm_t comm) { return sendTo(d, kMuch, (rank + 1) % 3, comm); },
     {"Send #", "rank 0", "rank 1", "rank 2"}},
    {"oneOfThreeInAMessage",
     3,
     10,
     [](const GpuInts& d, int rank, ncclComm_t comm) { return rank == 2 ? receiveFrom(d, 10, 0, comm) : sum(d, 1000, comm); },
     {"Recv #", "AllReduce #"}},
    {"broadcastAgainstReceive",
     2,
     10,
     [](const GpuInts& d, int rank, ncclComm_t comm) {
       return rank == 0 ? receiveFrom(d, 10, 1, comm) : ncclBroadcast(d.data(), d.data(), 100, ncclInt, 0, comm, nullptr);
     },
     {"Recv #", "Broadcast #"}},
};

class GpuHopeless : public testing::TestWithParam<Hopeless> {
 protected:
  static constexpr size_t kRoom = kMuch;

  void tryIt(bool warmUp) {
    const Hopeless& p = GetParam();
    FakeGpus gpus(p.ranks);
    RankThreads threads(p.ranks, "", [&](int rank) { return std::make_shared<UseGpu>(gpus, rank); });
    ASSERT_TRUE(threads.created());
    threads.run([&](int rank, ncclComm_t comm) {
      const GpuInts data(kRoom);
      if (warmUp) {
        ASSERT_EQ(sum(data, 1000, comm), ncclSuccess) << ncclGetLastError(comm);
        ASSERT_EQ(ncclGroupStart(), ncclSuccess);
        const int next = (rank + 1) % p.ranks, before = (rank + p.ranks - 1) % p.ranks;
        for (const int peer : {next, before}) {
          EXPECT_EQ(sendTo(data, p.count, peer, comm), ncclSuccess);
          EXPECT_EQ(receiveFrom(data, p.count, peer, comm), ncclSuccess);
        }
        ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(comm);
        ASSERT_EQ(ncclBroadcast(data.data(), data.data(), 100, ncclInt, 0, comm, nullptr), ncclSuccess);
        synchronize(gpus);
        threads.meet();
      }
      const Stopwatch watch;
      const ncclResult_t called = p.call(data, rank, comm);
      EXPECT_TRUE(called == ncclSuccess || called == ncclInvalidUsage) << called << ": " << ncclGetLastError(comm);
      EXPECT_EQ(awaitError(comm, 3 * kSlow), ncclInvalidUsage);
      EXPECT_LT(watch.seconds(), 2 * kSlow);
      const std::string text = ncclGetLastError(comm);
      for (const std::string& part : p.parts) EXPECT_NE(text.find(part), std::string::npos) << text;
      EXPECT_NE(text.find("wait for each other for ever"), std::string::npos) << text;
      synchronize(gpus);
      threads.meet();
    });
  }
};

// A rank that is late for more calls than a book holds is late and no more.
TEST(GpuLate, IsNoCircle) {
  constexpr int kRanks = 3, kCalls = 1300;
  FakeGpus gpus(kRanks);
  RankThreads threads(kRanks, "", [&](int rank) { return std::make_shared<UseGpu>(gpus, rank); });
  ASSERT_TRUE(threads.created());
  threads.run([&](int rank, ncclComm_t comm) {
    const GpuInts data(100);
    ASSERT_EQ(ncclBroadcast(data.data(), data.data(), 100, ncclInt, 0, comm, nullptr), ncclSuccess) << ncclGetLastError(comm);
    synchronize(gpus);
    threads.meet();
    std::atomic<bool> isOver = false;
    std::thread watchdog([&] {
      ncclResult_t state = ncclSuccess;
      while (!isOver) {
        EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
        EXPECT_EQ(state, ncclSuccess) << ncclGetLastError(comm);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    for (int i = 0; i < kCalls; ++i) {
      if (i == kCalls / 2 && rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      if (i % 3 == 2) {
        (void)ncclGroupStart();
        EXPECT_EQ(sendTo(data, 10, (rank + 1) % kRanks, comm), ncclSuccess);
        EXPECT_EQ(receiveFrom(data, 10, (rank + kRanks - 1) % kRanks, comm), ncclSuccess);
        EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(comm);
      } else {
        EXPECT_EQ(ncclBroadcast(data.data(), data.data(), 100, ncclInt, i % kRanks, comm, nullptr), ncclSuccess) << ncclGetLastError(comm);
      }
    }
    synchronize(gpus);
    isOver = true;
    watchdog.join();
    threads.meet();
  });
}

TEST_P(GpuHopeless, IsFoundWithoutADeadline) { tryIt(true); }
TEST_P(GpuHopeless, IsFoundAlsoInTheFirstCall) { tryIt(false); }

INSTANTIATE_TEST_SUITE_P(Calls, GpuHopeless, testing::ValuesIn(kHopeless), [](const auto& param) { return param.param.name; });

TEST(GpuMemory, ABudgetThatIsTooSmallIsSaid) {
  FakeGpus gpus(2);
  const ScopedSetting limit("TUTTI_MEM_LIMIT", "4194304");
  std::vector<ncclComm_t> comms(2);
  ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
  std::vector<std::unique_ptr<GpuInts>> data;
  for (int r = 0; r < 2; ++r) {
    const UseGpu use(gpus, r);
    data.push_back(std::make_unique<GpuInts>(5'000'000));
  }
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (size_t r = 0; r < 2; ++r) EXPECT_EQ(sum(*data[r], 5'000'000, comms[r]), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclUnhandledCudaError);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("TUTTI_MEM_LIMIT"), std::string::npos) << ncclGetLastError(nullptr);
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

TEST(GpuMemory, OneAfterTheOtherLeaveNothing) {
  FakeGpus gpus(3);
  tutti::Bytes before{0};
  for (int life = 0; life < 100; ++life) {
    std::vector<ncclComm_t> comms(3);
    ASSERT_EQ(ncclCommInitAll(comms.data(), 3, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
    std::vector<std::unique_ptr<GpuInts>> data;
    for (int r = 0; r < 3; ++r) {
      const UseGpu use(gpus, r);
      data.push_back(std::make_unique<GpuInts>(50'000));
    }
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (size_t r = 0; r < 3; ++r) EXPECT_EQ(sum(*data[r], life % 2 == 0 ? 50'000 : 5, comms[r]), ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
    // Destroyed while kernels may still run.
    for (const ncclComm_t comm : comms) ASSERT_EQ(ncclCommDestroy(comm), ncclSuccess);
    data.clear();
    if (life == 9) before = gpus.driver().used(0);
    if (life > 9) {
      ASSERT_LE(gpus.driver().used(0).value, before.value) << "life " << life;
    }
  }
}

TEST(GpuMemory, EveryDriverCallMayFail) {
  const ScopedSetting limit("TUTTI_TIMEOUT_MS", "2000");
  size_t failing = 0;
  for (size_t nth = 1;; ++nth) {
    FakeGpus gpus(2);
    std::vector<ncclComm_t> comms(2, nullptr);
    std::vector<void*> data(2, nullptr);
    for (int r = 0; r < 2; ++r) {
      const UseGpu use(gpus, r);
      ASSERT_EQ(ncclMemAlloc(&data[static_cast<size_t>(r)], 400'000), ncclSuccess);
    }
    gpus.driver().failAt(nth);
    ncclResult_t result = ncclCommInitAll(comms.data(), 2, nullptr);
    const bool isOpen = result == ncclSuccess;
    for (const size_t count : {size_t{10}, size_t{100'000}}) {
      if (result != ncclSuccess) break;
      (void)ncclGroupStart();
      for (size_t r = 0; r < 2 && result == ncclSuccess; ++r)
        result = ncclAllReduce(data[r], data[r], count, ncclInt, ncclSum, comms[r], nullptr);
      const ncclResult_t ended = ncclGroupEnd();
      if (result == ncclSuccess) result = ended;
    }
    const auto failed = gpus.driver().failed();
    const std::string text = ncclGetLastError(nullptr);
    for (const ncclComm_t comm : comms) {
      if (!isOpen) break;
      EXPECT_EQ(result == ncclSuccess ? ncclCommDestroy(comm) : ncclCommAbort(comm), ncclSuccess);
    }
    const bool failedLater = !failed && gpus.driver().failed();
    gpus.driver().failAt(0);
    for (int r = 0; r < 2; ++r) {
      const UseGpu use(gpus, r);
      synchronize(gpus);
      EXPECT_EQ(ncclMemFree(data[static_cast<size_t>(r)]), ncclSuccess);
    }
    EXPECT_FALSE(HasFailure()) << "call " << nth << ": " << (failed ? driver::cuda::symbolOf(*failed) : "none") << ", " << text;
    if (HasFailure()) return;
    if (!failed && !failedLater) break;
    if (result != ncclSuccess) {
      ++failing;
      EXPECT_EQ(result, ncclUnhandledCudaError) << driver::cuda::symbolOf(*failed) << ": " << text;
    }
  }
  EXPECT_GT(failing, 50u);
}

TEST(GpuSplit, ChildrenComputeOnTheSameGpus) {
  FakeGpus gpus(4);
  RankThreads threads(4, "", [&](int rank) { return std::make_shared<UseGpu>(gpus, rank); });
  threads.run([&](int rank, ncclComm_t comm) {
    const GpuInts data(10'000);
    ASSERT_EQ(sum(data, 10'000, comm), ncclSuccess) << ncclGetLastError(comm);
    ncclComm_t pair = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, rank % 2, -rank, &pair, nullptr), ncclSuccess) << ncclGetLastError(comm);
    for (int k = 0; k < 3; ++k) {
      ASSERT_EQ(sum(data, 10'000, pair), ncclSuccess) << ncclGetLastError(pair);
      ASSERT_EQ(sum(data, 10'000, comm), ncclSuccess) << ncclGetLastError(comm);
    }
    synchronize(gpus);
    for (size_t i = 0; i < 10'000; ++i) ASSERT_EQ(data.data()[i], 4 * 8 * 8 * 8);
    EXPECT_EQ(ncclCommDestroy(pair), ncclSuccess);
  });
}

}  // namespace
}  // namespace tutti::conformance::faults_test
