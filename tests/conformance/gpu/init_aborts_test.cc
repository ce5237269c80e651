// Set-ups of non-blocking communicators on GPUs that are aborted: while ranks are missing, and at any moment when all have come.
#include <gtest/gtest.h>

#include <string>

#include "conformance/gpu/rank_lives.h"

namespace tutti::conformance::init_aborts_test {
namespace {

using faults::kSlow;
using faults::Stopwatch;

/// A non-blocking communicator of GPUs whose set-up is aborted.
class GpuInitAborts : public testing::Test {
 protected:
  static constexpr int kRanks = 3;

  ncclComm_t begin(const ncclUniqueId& id, int rank) {
    const UseGpu use(gpus, rank);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    const ncclResult_t begun = ncclCommInitRankConfig(&comm, kRanks, id, rank, &config);
    EXPECT_TRUE(begun == ncclSuccess || begun == ncclInProgress) << ncclGetLastError(nullptr);
    EXPECT_NE(comm, nullptr);
    return comm;
  }
  static ncclResult_t settle(ncclComm_t comm) { return conformance::settle(comm, 2 * kSlow); }
  static void abort(ncclComm_t comm) {
    const Stopwatch watch;
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess) << ncclGetLastError(nullptr);
    EXPECT_LT(watch.seconds(), kSlow);
  }

  FakeGpus gpus{kRanks};
  RankLives lives{gpus, kRanks, 1000};
};

TEST_F(GpuInitAborts, WhileNobodyElseHasCome) {
  lives.liveOnce();
  const Level before = lives.level();
  for (const int asked : {0, 1, 100}) {
    const ncclComm_t comm = begin(RankLives::newId(), 1);
    for (int k = 0; k < asked; ++k) EXPECT_EQ(stateOf(comm), ncclInProgress);
    abort(comm);
  }
  EXPECT_EQ(lives.level(), before) << gpus.alive();
  lives.liveOnce();
}

TEST_F(GpuInitAborts, FreesThoseWhoHaveCome) {
  lives.liveOnce();
  const Level before = lives.level();
  for (const bool isInGroup : {false, true}) {
    const ncclUniqueId id = RankLives::newId();
    if (isInGroup) {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    }
    ncclComm_t comms[2] = {begin(id, 0), begin(id, 2)};
    if (isInGroup) {
      ASSERT_EQ(ncclGroupEnd(), ncclInProgress);
    }
    for (int k = 0; k < 50; ++k)
      for (const ncclComm_t comm : comms) EXPECT_EQ(stateOf(comm), ncclInProgress);
    abort(comms[0]);
    EXPECT_EQ(settle(comms[1]), ncclRemoteError);
    abort(comms[1]);
    const UseGpu use(gpus, 1);
    ncclComm_t late = nullptr;
    EXPECT_NE(ncclCommInitRank(&late, kRanks, id, 1), ncclSuccess) << "the meeting is over";
    EXPECT_EQ(late, nullptr);
  }
  EXPECT_EQ(lives.level(), before) << gpus.alive();
  lives.liveOnce();
}

/// All have come; their states are asked so often, and then one is aborted.
class GpuInitAbortsAt : public GpuInitAborts {
 protected:
  void abortAfter(int first, int asked) {
    const ncclUniqueId id = RankLives::newId();
    ncclComm_t comms[kRanks] = {};
    for (int r = 0; r < kRanks; ++r) comms[r] = begin(id, r);
    for (int k = 0; k < asked; ++k) (void)stateOf(comms[(first + k) % kRanks]);
    abort(comms[kAborts]);
    for (const int r : {0, 2})
      EXPECT_EQ(settle(comms[r]), ncclRemoteError) << "rank " << r << ", asked " << asked << " times from " << first;
    for (const int r : {0, 2}) abort(comms[r]);
  }
  static constexpr int kAborts = 1;
};

// Wherever that is, the others are told sooner or later.
TEST_F(GpuInitAbortsAt, AnyMomentOfItFreesTheOthers) {
  lives.liveOnce();
  const Level before = lives.level();
  for (int asked = 1; asked < 12; ++asked) abortAfter(kAborts, asked);
  lives.liveOnce();
  EXPECT_EQ(lives.level(), before) << gpus.alive();
}

// The one that is aborted has not been asked for its state yet, so it does not know that all have come.
TEST_F(GpuInitAbortsAt, WhoHasNotBeenAskedFreesTheOthersToo) {
  lives.liveOnce();
  const Level before = lives.level();
  abortAfter(0, 0);
  abortAfter(0, 1);
  lives.liveOnce();
  EXPECT_EQ(lives.level(), before) << gpus.alive();
}

TEST_F(GpuInitAborts, AreToldInWords) {
  const ncclUniqueId id = RankLives::newId();
  ncclComm_t comms[2] = {begin(id, 0), begin(id, 2)};
  EXPECT_EQ(ncclCommCount(nullptr, nullptr), ncclInvalidArgument);  // its text is the latest, until another one is written
  abort(comms[0]);
  EXPECT_EQ(settle(comms[1]), ncclRemoteError);
  EXPECT_NE(std::string(ncclGetLastError(comms[1])).find("rank 0 aborted"), std::string::npos) << ncclGetLastError(comms[1]);
  abort(comms[1]);
}

}  // namespace
}  // namespace tutti::conformance::init_aborts_test
