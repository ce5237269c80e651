// Ranks on GPUs that go on without one that is lost: revoke and shrink, after deadlines, mismatches and aborts, with kernels that wait.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "conformance/gpu/rank_lives.h"

namespace tutti::conformance::survivors_test {
namespace {

using driver::cuda::Error;
using driver::cuda::Graph;
using faults::kSlow;
using faults::Stopwatch;

constexpr size_t kCount = 20'000;
constexpr int kLost = 1;  ///< the rank that the others go on without: of the middle, so that ranks behind it get other numbers

void pause(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

class GpuSurvivors : public testing::Test {
 protected:
  static constexpr int kRanks = 3;
  using Body = std::function<void(int rank, ncclComm_t comm)>;

  /// All ranks have summed once before the body, if they are to be connected; they meet again before they end. Nothing may be left.
  void run(const Body& body, bool isConnected = true) {
    lives.liveOnce();
    const Level before = lives.level();
    const ncclUniqueId id = RankLives::newId();
    lives.run("survivors", [&](int rank) {
      const ncclComm_t comm = lives.join(id, rank);
      if (isConnected) {
        ASSERT_EQ(lives.sumAll(rank, comm), ncclSuccess) << ncclGetLastError(comm);
      }
      lives.await(rank);
      lives.fill(rank, 1);
      lives.meet();
      body(rank, comm);
      lives.meet();
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess) << ncclGetLastError(nullptr);
      lives.await(rank);
    });
    lives.liveOnce();
    EXPECT_EQ(lives.level(), before) << gpus.alive();
  }
  bool isWaiting(int rank) { return gpus.driver().streamQuery(lives.stream(rank)) == Error::NotReady; }

  ncclResult_t shrink(ncclComm_t comm, int flags, ncclComm_t* child) {
    int lost = kLost;
    return ncclCommShrink(comm, &lost, 1, child, nullptr, flags);
  }
  /// What is left computes, also in a graph.
  void goOn(int rank, ncclComm_t comm, int flags) {
    ncclComm_t child = nullptr;
    ASSERT_EQ(shrink(comm, flags, &child), ncclSuccess) << ncclGetLastError(comm);
    lives.await(rank);  // what was ended by that
    int number = -1;
    EXPECT_EQ(ncclCommUserRank(child, &number), ncclSuccess);
    EXPECT_EQ(number, rank < kLost ? rank : rank - 1);
    lives.fill(rank, rank + 1);
    ASSERT_EQ(lives.sumAll(rank, child), ncclSuccess) << ncclGetLastError(child);
    lives.await(rank);
    lives.expectAll(rank, 4, "a sum of ranks 0 and 2");
    const Graph graph = lives.capture(rank, [&] { ASSERT_EQ(lives.sumAll(rank, child), ncclSuccess) << ncclGetLastError(child); });
    lives.replay(graph, rank);
    lives.await(rank);
    lives.expectAll(rank, 8, "a graph of what is left");
    lives.destroy(graph);
    EXPECT_EQ(ncclCommDestroy(child), ncclSuccess) << ncclGetLastError(nullptr);
  }

  FakeGpus gpus{kRanks};
  RankLives lives{gpus, kRanks, kCount};
};

TEST_F(GpuSurvivors, ARevokeEndsKernelsThatWaitAndTheOthersAreTold) {
  run([&](int rank, ncclComm_t comm) {
    if (rank != kLost) {
      ASSERT_EQ(lives.sumAll(rank, comm), ncclSuccess) << ncclGetLastError(comm);
      pause(30);
      EXPECT_TRUE(isWaiting(rank));
    }
    lives.meet();
    if (rank == 0) {
      const Stopwatch watch;
      EXPECT_EQ(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), ncclSuccess) << ncclGetLastError(comm);
      EXPECT_FALSE(isWaiting(rank)) << "its kernels have ended";
      EXPECT_LT(watch.seconds(), kSlow);
    }
    lives.meet();
    ncclResult_t state = ncclInternalError;
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    EXPECT_EQ(state, rank == 0 ? ncclSuccess : ncclRemoteError);
    if (rank == 2) {
      EXPECT_NE(std::string(ncclGetLastError(comm)).find("rank 0 revoked"), std::string::npos) << ncclGetLastError(comm);
    }
    lives.await(rank);
    lives.meet();  // the text of an error is the process's, and there are others from here on
    EXPECT_EQ(lives.sumAll(rank, comm), rank == 0 ? ncclInvalidUsage : ncclRemoteError);
    lives.meet();
    if (rank != 0) {
      EXPECT_EQ(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), ncclSuccess) << ncclGetLastError(comm);
    }
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    EXPECT_EQ(state, ncclSuccess);
    if (rank != kLost) goOn(rank, comm, NCCL_SHRINK_DEFAULT);
  });
}

TEST_F(GpuSurvivors, ARevokedCommunicatorCanBeSplit) {
  run([&](int rank, ncclComm_t comm) {
    if (rank != kLost) {
      ASSERT_EQ(lives.sumAll(rank, comm), ncclSuccess) << ncclGetLastError(comm);
    }
    lives.meet();
    EXPECT_EQ(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), ncclSuccess) << ncclGetLastError(comm);
    lives.await(rank);
    lives.meet();
    ncclComm_t child = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, 0, -rank, &child, nullptr), ncclSuccess) << ncclGetLastError(comm);
    lives.fill(rank, 1);
    ASSERT_EQ(lives.sumAll(rank, child), ncclSuccess) << ncclGetLastError(child);
    lives.await(rank);
    lives.expectAll(rank, kRanks, "all ranks, once more");
    EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
  });
}

// Ranks that wait for a connection to the one that never comes, and not yet in a kernel.
TEST_F(GpuSurvivors, ARevokeEndsAWaitForAConnection) {
  run(
      [&](int rank, ncclComm_t comm) {
        if (rank == 2) {
          EXPECT_EQ(lives.sumAll(rank, comm), ncclRemoteError);
        } else if (rank == 0) {
          pause(50);
          const Stopwatch watch;
          EXPECT_EQ(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), ncclSuccess) << ncclGetLastError(comm);
          EXPECT_LT(watch.seconds(), kSlow);
        }
        lives.meet();
        if (rank != 0) {
          EXPECT_EQ(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), ncclSuccess) << ncclGetLastError(comm);
        }
        if (rank != kLost) goOn(rank, comm, NCCL_SHRINK_DEFAULT);
      },
      false);
}

TEST_F(GpuSurvivors, AShrinkThatAbortsEndsKernelsThatWait) {
  run([&](int rank, ncclComm_t comm) {
    if (rank != kLost) {
      ASSERT_EQ(lives.sumAll(rank, comm), ncclSuccess) << ncclGetLastError(comm);
      pause(20);
      EXPECT_TRUE(isWaiting(rank));
    }
    lives.meet();
    if (rank == kLost) return;
    if (rank == 2) pause(30);  // whoever shrinks first ends the others' kernels
    goOn(rank, comm, NCCL_SHRINK_ABORT);
    EXPECT_EQ(lives.sumAll(rank, comm), ncclRemoteError) << "the parent is over";
    EXPECT_NE(std::string(ncclGetLastError(comm)).find("shrinks the communicator"), std::string::npos) << ncclGetLastError(comm);
  });
}

// The same of a graph that was launched, and lives longer than its communicator.
TEST_F(GpuSurvivors, AShrinkThatAbortsEndsGraphsThatWait) {
  Graph graphs[kRanks] = {};
  run([&](int rank, ncclComm_t comm) {
    graphs[rank] = lives.capture(rank, [&] { ASSERT_EQ(lives.sumAll(rank, comm), ncclSuccess) << ncclGetLastError(comm); });
    lives.meet();
    if (rank != kLost) {
      lives.replay(graphs[rank], rank);
      pause(20);
      EXPECT_TRUE(isWaiting(rank));
    }
    lives.meet();
    if (rank != kLost) {
      goOn(rank, comm, NCCL_SHRINK_ABORT);
      lives.replay(graphs[rank], rank);  // of a communicator that is over: ends, no more is promised
      lives.await(rank);
    }
    lives.meet();
    lives.destroy(graphs[rank]);
  });
}

TEST_F(GpuSurvivors, AfterADeadlineAShrinkNeedsTheFlag) {
  run([&](int rank, ncclComm_t comm) {
    EXPECT_EQ(tuttiCommSetTimeout(comm, rank == 0 ? 100 : 0), ncclSuccess);
    if (rank != kLost) {
      ASSERT_EQ(lives.sumAll(rank, comm), ncclSuccess) << ncclGetLastError(comm);
    }
    EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclRemoteError);
    EXPECT_EQ(tuttiCommSetTimeout(comm, 0), ncclSuccess);
    lives.await(rank);
    lives.meet();
    if (rank == kLost) return;
    ncclComm_t child = nullptr;
    const Stopwatch watch;
    EXPECT_EQ(shrink(comm, NCCL_SHRINK_DEFAULT, &child), ncclRemoteError);
    EXPECT_LT(watch.seconds(), kSlow);
    EXPECT_EQ(child, nullptr);
    EXPECT_NE(std::string(ncclGetLastError(comm)).find("deadline of 100 ms"), std::string::npos) << ncclGetLastError(comm);
    goOn(rank, comm, NCCL_SHRINK_ABORT);
  });
}

TEST_F(GpuSurvivors, AfterAMismatch) {
  run([&](int rank, ncclComm_t comm) {
    const ncclResult_t called = sum(lives.data(rank), rank == kLost ? kCount - 1 : kCount, comm, lives.stream(rank));
    EXPECT_TRUE(called == ncclSuccess || called == ncclInvalidUsage) << ncclGetLastError(comm);
    EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclInvalidUsage) << ncclGetLastError(comm);
    lives.await(rank);
    lives.meet();
    if (rank == kLost) return;
    ncclComm_t child = nullptr;
    EXPECT_EQ(shrink(comm, NCCL_SHRINK_DEFAULT, &child), ncclInvalidUsage);
    EXPECT_EQ(child, nullptr);
    goOn(rank, comm, NCCL_SHRINK_ABORT);
  });
}

TEST_F(GpuSurvivors, AfterTheLostOneHasAborted) {
  lives.liveOnce();
  const Level before = lives.level();
  const ncclUniqueId id = RankLives::newId();
  lives.run("an abort, then a shrink", [&](int rank) {
    const ncclComm_t comm = lives.join(id, rank);
    ASSERT_EQ(lives.sumAll(rank, comm), ncclSuccess) << ncclGetLastError(comm);
    lives.await(rank);
    lives.meet();
    if (rank == kLost) {
      pause(20);
      EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    } else {
      ASSERT_EQ(lives.sumAll(rank, comm), ncclSuccess) << ncclGetLastError(comm);
      EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclRemoteError);
      EXPECT_NE(std::string(ncclGetLastError(comm)).find("rank 1 aborted"), std::string::npos) << ncclGetLastError(comm);
      goOn(rank, comm, NCCL_SHRINK_ABORT);
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess) << ncclGetLastError(nullptr);
    }
  });
  lives.liveOnce();
  EXPECT_EQ(lives.level(), before) << gpus.alive();
}

}  // namespace
}  // namespace tutti::conformance::survivors_test
