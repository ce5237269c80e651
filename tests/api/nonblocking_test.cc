// Communicators with blocking = 0: what each call returns, and what the state is then.
#include <string>
#include <thread>
#include <vector>

#include "api/api_fixture.h"

namespace tutti::api_test::nonblocking_test {
namespace {

using conformance::runWithin;

ncclConfig_t nonBlocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

ncclUniqueId newId() {
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ok);
  return id;
}

ncclResult_t stateOf(ncclComm_t comm) {
  ncclResult_t state = ok;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ok);
  return state;
}

/// Asks until nothing is under way.
ncclResult_t settle(ncclComm_t comm) {
  for (;;) {
    const ncclResult_t state = stateOf(comm);
    if (state != ncclInProgress) return state;
    std::this_thread::yield();
  }
}

ncclResult_t sum(int* value, ncclComm_t comm, cudaStream_t stream = nullptr) {
  return ncclAllReduce(value, value, 1, ncclInt, ncclSum, comm, stream);
}

/// Two ranks, driven by one thread, ready.
class NonBlocking : public testing::Test {
 protected:
  void SetUp() override {
    const ncclUniqueId id = newId();
    ncclConfig_t config = nonBlocking();
    for (int r = 0; r < 2; ++r) {
      ASSERT_EQ(ncclCommInitRankConfig(&comms[r], 2, id, r, &config), ncclInProgress) << ncclGetLastError(nullptr);
      ASSERT_NE(comms[r], nullptr) << "at once";
    }
    for (ncclComm_t comm : comms) ASSERT_EQ(settle(comm), ok);
  }
  void TearDown() override {
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ok);  // NULL: nothing
  }
  /// Rank 0 is in the middle of a call that waits for rank 1.
  void begin() {
    ASSERT_EQ(sum(&values[0], comms[0]), ncclInProgress);
    ASSERT_EQ(stateOf(comms[0]), ncclInProgress);
  }
  /// Both ranks are through with a sum, and with the end of their communicators.
  void sumThenFinalize() {
    begin();
    EXPECT_EQ(sum(&values[1], comms[1]), ncclInProgress);
    for (ncclComm_t comm : comms) EXPECT_EQ(settle(comm), ok);
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
    for (ncclComm_t comm : comms) EXPECT_EQ(settle(comm), ok);
  }
  void expectPoisoned(ncclResult_t code = ncclInvalidArgument) {
    EXPECT_EQ(stateOf(comms[0]), code);
    EXPECT_EQ(sum(&values[0], comms[0]), code);
    EXPECT_EQ(ncclCommFinalize(comms[0]), code);
    EXPECT_EQ(ncclCommDestroy(comms[0]), code);
    EXPECT_EQ(ncclCommAbort(comms[0]), ok);
    comms[0] = nullptr;
  }
  ncclComm_t comms[2] = {};
  int values[2] = {1, 2};
};

TEST(NonBlockingInit, TheHandleIsThereAtOnceAndTheStateTellsTheRest) {
  const ncclUniqueId id = newId();
  ncclConfig_t config = nonBlocking();
  ncclComm_t comms[2] = {};
  ASSERT_EQ(ncclCommInitRankConfig(&comms[0], 2, id, 0, &config), ncclInProgress);
  ASSERT_NE(comms[0], nullptr);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(stateOf(comms[0]), ncclInProgress) << "rank 1 has not come";
  int n = -1;
  EXPECT_EQ(ncclCommCount(comms[0], &n), ncclInvalidArgument);
  EXPECT_EQ(ncclCommUserRank(comms[0], &n), ncclInvalidArgument);
  EXPECT_EQ(ncclCommCuDevice(comms[0], &n), ncclInvalidArgument);
  EXPECT_EQ(n, -1);
  ASSERT_EQ(ncclCommInitRankConfig(&comms[1], 2, id, 1, &config), ncclInProgress);
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(settle(comms[r]), ok) << "questions do no harm";
    EXPECT_EQ(ncclCommUserRank(comms[r], &n), ok);
    EXPECT_EQ(n, r);
    EXPECT_EQ(ncclCommDestroy(comms[r]), ok);
  }
}

TEST(NonBlockingInit, EveryUseOfAnUnfinishedOnePoisonsIt) {
  using Use = ncclResult_t (*)(ncclComm_t);
  const Use uses[] = {
      [](ncclComm_t c) {
        static int x;
        return sum(&x, c);
      },
      [](ncclComm_t c) {
        static int x;
        return ncclSend(&x, 1, ncclInt, 1, c, nullptr);
      },
      [](ncclComm_t c) {
        static int x;
        return ncclRecv(&x, 1, ncclInt, 1, c, nullptr);
      },
      [](ncclComm_t c) { return ncclCommFinalize(c); },
      [](ncclComm_t c) { return ncclCommDestroy(c); },
      [](ncclComm_t c) {
        static ncclComm_t child;
        return ncclCommSplit(c, 0, 0, &child, nullptr);
      },
      [](ncclComm_t c) {
        static ncclComm_t child;
        int excluded = 1;
        return ncclCommShrink(c, &excluded, 1, &child, nullptr, 0);
      },
      [](ncclComm_t c) {
        static ncclComm_t child;
        int excluded = 1;
        return ncclCommShrink(c, &excluded, 1, &child, nullptr, 1);
      },
      [](ncclComm_t c) {
        static float x;
        ncclRedOp_t op;
        return ncclRedOpCreatePreMulSum(&op, &x, ncclFloat, ncclScalarHostImmediate, c);
      },
  };
  ncclComm_t other = nullptr;  // after a lone call on it the thread's calls are looked at the short way first
  ASSERT_EQ(ncclCommInitAll(&other, 1, nullptr), ok);
  int one = 1;
  ASSERT_EQ(sum(&one, other), ok);
  ASSERT_EQ(ncclCommDestroy(other), ok);
  for (const Use& use : uses) {
    SCOPED_TRACE(&use - uses);
    ncclConfig_t config = nonBlocking();
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRankConfig(&comm, 2, newId(), 0, &config), ncclInProgress);
    EXPECT_TRUE(refused(use(comm), ncclInvalidArgument, {"before its previous operation was complete"}));
    EXPECT_EQ(stateOf(comm), ncclInvalidArgument);
    EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
    EXPECT_EQ(ncclCommAbort(comm), ok);
  }
}

TEST(NonBlockingInit, AnAbortInTheMiddleFreesTheOthers) {
  const ncclUniqueId id = newId();
  ncclConfig_t config = nonBlocking();
  ncclComm_t comms[2] = {};
  for (int r = 0; r < 2; ++r) ASSERT_EQ(ncclCommInitRankConfig(&comms[r], 3, id, r, &config), ncclInProgress);
  EXPECT_EQ(ncclCommAbort(comms[0]), ok);
  EXPECT_EQ(settle(comms[1]), ncclRemoteError);
  EXPECT_EQ(ncclCommAbort(comms[1]), ok);
  ncclComm_t late = nullptr;
  EXPECT_NE(ncclCommInitRank(&late, 3, id, 2), ok) << "the meeting is over";
}

// All have come, and the one that is aborted does not know it: nobody has asked for its state.
TEST(NonBlockingInit, AnAbortWhenAllHaveComeFreesTheOthers) {
  runWithin(20, "abort of a rank that has not looked", [] {
    constexpr int kRanks = 3;
    const ncclUniqueId id = newId();
    ncclConfig_t config = nonBlocking();
    ncclComm_t comms[kRanks] = {};
    for (int r = 0; r < kRanks; ++r) ASSERT_EQ(ncclCommInitRankConfig(&comms[r], kRanks, id, r, &config), ncclInProgress);
    EXPECT_EQ(ncclCommAbort(comms[1]), ok);
    for (const int r : {0, 2}) {
      EXPECT_EQ(settle(comms[r]), ncclRemoteError) << "rank " << r;
      EXPECT_NE(std::string(ncclGetLastError(comms[r])).find("rank 1 aborted"), std::string::npos) << ncclGetLastError(comms[r]);
      EXPECT_EQ(ncclCommAbort(comms[r]), ok);
    }
  });
}

TEST(NonBlockingInit, ABadIdIsTheCallsError) {
  ncclUniqueId zero;
  std::memset(&zero, 0, sizeof zero);
  ncclConfig_t config = nonBlocking();
  ncclComm_t comm = reinterpret_cast<ncclComm_t>(0x1234);
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, zero, 0, &config), ncclInvalidArgument);
  EXPECT_EQ(comm, nullptr);
}

TEST(NonBlockingInit, InAGroup) {
  const ncclUniqueId id = newId();
  ncclConfig_t config = nonBlocking();
  ncclComm_t comms[2] = {};
  ASSERT_EQ(ncclGroupStart(), ok);
  for (int r = 0; r < 2; ++r) ASSERT_EQ(ncclCommInitRankConfig(&comms[r], 2, id, r, &config), ok) << "inside a group";
  ASSERT_EQ(ncclGroupEnd(), ncclInProgress);
  for (ncclComm_t comm : comms) EXPECT_EQ(settle(comm), ok);
  for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ok);
}

TEST_F(NonBlocking, OperationsAreInProgressUntilTheyAreComplete) {
  for (int round = 1; round <= 3; ++round) {
    values[0] = round, values[1] = 10;
    begin();
    ASSERT_EQ(sum(&values[1], comms[1]), ncclInProgress) << "also when there is nothing left to connect";
    for (ncclComm_t comm : comms) EXPECT_EQ(settle(comm), ok);
    EXPECT_EQ(values[0], 10 + round);
    EXPECT_EQ(values[1], 10 + round);
  }
}

TEST_F(NonBlocking, AGroupIsInProgressWhenItEnds) {
  ASSERT_EQ(ncclGroupStart(), ok);
  for (int r = 0; r < 2; ++r) {
    ASSERT_EQ(sum(&values[r], comms[r]), ok) << "inside a group";
    EXPECT_EQ(stateOf(comms[r]), ok);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclInProgress);
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(settle(comms[r]), ok);
    EXPECT_EQ(values[r], 3);
  }
}

TEST_F(NonBlocking, WorkOnAHostStreamIsQueued) {
  cudaStream_t streams[2];
  for (int r = 0; r < 2; ++r) {
    ASSERT_EQ(tuttiStreamCreate(&streams[r]), ok);
    ASSERT_EQ(sum(&values[r], comms[r], streams[r]), ncclInProgress);
    EXPECT_EQ(settle(comms[r]), ok) << "it is enqueued, whatever the stream waits for";
  }
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(tuttiStreamSynchronize(streams[r]), ok);
    EXPECT_EQ(values[r], 3);
    EXPECT_EQ(tuttiStreamDestroy(streams[r]), ok);
  }
}

TEST_F(NonBlocking, AUseInBetweenPoisons) {
  begin();
  EXPECT_TRUE(refused(sum(&values[0], comms[0]), ncclInvalidArgument, {"ncclCommGetAsyncError"}));
  expectPoisoned();
}

TEST_F(NonBlocking, QuestionsInBetweenAreRefusedAndDoNotPoison) {
  begin();
  int n = -1;
  EXPECT_EQ(ncclCommCount(comms[0], &n), ncclInvalidArgument);
  EXPECT_EQ(stateOf(comms[0]), ncclInProgress);
  ASSERT_EQ(sum(&values[1], comms[1]), ncclInProgress);
  EXPECT_EQ(settle(comms[0]), ok);
  EXPECT_EQ(settle(comms[1]), ok);
  EXPECT_EQ(ncclCommCount(comms[0], &n), ok);
  EXPECT_EQ(n, 2);
}

TEST_F(NonBlocking, AnArgumentErrorPoisons) {
  EXPECT_EQ(ncclBroadcast(values, values, 1, ncclInt, 2, comms[0], nullptr), ncclInvalidArgument);
  expectPoisoned();
  EXPECT_EQ(stateOf(comms[1]), ncclRemoteError) << "rank 0 aborted";
}

TEST_F(NonBlocking, FinalizeThenDestroy) {
  sumThenFinalize();
  for (ncclComm_t& comm : comms) {
    EXPECT_EQ(ncclCommDestroy(comm), ok);
    comm = nullptr;
  }
}

/// What is refused afterwards is an error for good, and no reason to keep the communicator.
TEST_F(NonBlocking, FinalizeThenACallThenDestroy) {
  sumThenFinalize();
  for (ncclComm_t& comm : comms) {
    EXPECT_EQ(sum(&values[0], comm), ncclInvalidUsage);
    EXPECT_EQ(stateOf(comm), ncclInvalidUsage);
    EXPECT_EQ(ncclCommDestroy(comm), ok) << ncclGetLastError(nullptr);
    comm = nullptr;
  }
}

TEST_F(NonBlocking, FinalizeWaitsForStreams) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(tuttiStreamCreate(&stream), ok);
  ASSERT_EQ(sum(&values[0], comms[0], stream), ncclInProgress);
  ASSERT_EQ(settle(comms[0]), ok);
  EXPECT_EQ(ncclCommFinalize(comms[0]), ncclInProgress);
  EXPECT_EQ(stateOf(comms[0]), ncclInProgress);
  ASSERT_EQ(sum(&values[1], comms[1]), ncclInProgress);
  EXPECT_EQ(settle(comms[0]), ok);
  EXPECT_EQ(values[0], 3);
  EXPECT_EQ(tuttiStreamDestroy(stream), ok);
}

TEST_F(NonBlocking, DestroyWithoutFinalizeAndAbortAreSynchronous) {
  EXPECT_EQ(ncclCommDestroy(comms[0]), ok);
  EXPECT_EQ(ncclCommAbort(comms[1]), ok);
  EXPECT_EQ(ncclCommDestroy(comms[1]), ncclInvalidArgument) << "it is gone";
  EXPECT_EQ(ncclCommAbort(comms[1]), ok) << "nothing left to do";
  comms[0] = comms[1] = nullptr;
}

TEST_F(NonBlocking, AnAbortEndsAnOperationThatWaits) {
  runWithin(10, "abort of a waiting operation", [this] {
    begin();
    EXPECT_EQ(ncclCommAbort(comms[0]), ok);
    EXPECT_EQ(stateOf(comms[1]), ncclRemoteError);
    comms[0] = nullptr;
  });
}

TEST_F(NonBlocking, SplitWritesTheChildWhenItIsReady) {
  ncclComm_t children[2] = {comms[0], comms[1]};
  ASSERT_EQ(ncclCommSplit(comms[0], 5, 0, &children[0], nullptr), ok) << "not ncclInProgress";
  EXPECT_EQ(children[0], nullptr) << "at once";
  for (int i = 0; i < 10; ++i) EXPECT_EQ(stateOf(comms[0]), ncclInProgress);
  EXPECT_EQ(children[0], nullptr);
  ASSERT_EQ(ncclCommSplit(comms[1], 5, -1, &children[1], nullptr), ok);
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(settle(comms[r]), ok);
    ASSERT_NE(children[r], nullptr);
    EXPECT_EQ(stateOf(children[r]), ok);
    int rank = -1;
    EXPECT_EQ(ncclCommUserRank(children[r], &rank), ok);
    EXPECT_EQ(rank, 1 - r) << "by key";
  }
  for (int r = 0; r < 2; ++r) EXPECT_EQ(sum(&values[r], children[r]), ncclInProgress) << "the child inherits blocking = 0";
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(settle(children[r]), ok);
    EXPECT_EQ(values[r], 3);
    EXPECT_EQ(ncclCommDestroy(children[r]), ok);
  }
}

TEST_F(NonBlocking, SplitWithoutColorHasToBePolledToo) {
  ncclComm_t children[2] = {comms[0], comms[1]};
  ASSERT_EQ(ncclCommSplit(comms[0], NCCL_SPLIT_NOCOLOR, 0, &children[0], nullptr), ok);
  EXPECT_EQ(children[0], nullptr);
  EXPECT_EQ(stateOf(comms[0]), ncclInProgress);
  ASSERT_EQ(ncclCommSplit(comms[1], 3, 0, &children[1], nullptr), ok);
  for (ncclComm_t comm : comms) EXPECT_EQ(settle(comm), ok);
  EXPECT_EQ(children[0], nullptr);
  ASSERT_NE(children[1], nullptr);
  EXPECT_EQ(ncclCommAbort(children[1]), ok);
}

TEST_F(NonBlocking, SplitInAGroup) {
  ncclComm_t children[2] = {};
  ASSERT_EQ(ncclGroupStart(), ok);
  for (int r = 0; r < 2; ++r) ASSERT_EQ(ncclCommSplit(comms[r], 0, 0, &children[r], nullptr), ok);
  EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(settle(comms[r]), ok);
    ASSERT_NE(children[r], nullptr);
    EXPECT_EQ(ncclCommAbort(children[r]), ok);
  }
}

TEST_F(NonBlocking, NotInOneGroupWithABlockingOne) {
  ncclComm_t blocking = nullptr;
  ASSERT_EQ(ncclCommInitAll(&blocking, 1, nullptr), ok);
  ASSERT_EQ(ncclGroupStart(), ok);
  EXPECT_EQ(sum(&values[0], blocking), ok);
  EXPECT_TRUE(refused(sum(&values[0], comms[0]), ncclInvalidArgument, {"blocking and non-blocking"}));
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(sum(&values[0], blocking), ok) << "it stays usable";
  EXPECT_EQ(ncclCommDestroy(blocking), ok);
}

TEST_F(NonBlocking, SimulationIsALaunch) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  ASSERT_EQ(ncclGroupStart(), ok);
  for (int r = 0; r < 2; ++r) ASSERT_EQ(sum(&values[r], comms[r]), ok);
  EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclInProgress);
  EXPECT_EQ(info.estimatedTime, NCCL_UNDEF_FLOAT);
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(settle(comms[r]), ok);
    EXPECT_EQ(values[r], 3);
  }
}

}  // namespace
}  // namespace tutti::api_test::nonblocking_test
