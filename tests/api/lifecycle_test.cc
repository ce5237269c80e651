// Revoke, shared fates, the estimate of a group, and ends in every state.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "api/api_fixture.h"

namespace tutti::api_test::lifecycle_test {
namespace {

using conformance::RankThreads;
using conformance::runWithin;
using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }
void sleepMs(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

ncclResult_t stateOf(ncclComm_t comm) {
  ncclResult_t state = ok;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ok);
  return state;
}

ncclUniqueId newId() {
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ok);
  return id;
}

/// Both ranks of a pair; its splits share, or do not.
void initBoth(ncclComm_t (&comms)[2], bool share) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.splitShare = share ? 1 : 0;
  const ncclUniqueId id = newId();
  ASSERT_EQ(ncclGroupStart(), ok);
  for (int r = 0; r < 2; ++r) ASSERT_EQ(ncclCommInitRankConfig(&comms[r], 2, id, r, &config), ok);
  ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(nullptr);
}

/// Two communicators made from both ranks of a pair by a split.
void splitBoth(ncclComm_t (&comms)[2], ncclComm_t (&children)[2]) {
  ASSERT_EQ(ncclGroupStart(), ok);
  for (int r = 0; r < 2; ++r) ASSERT_EQ(ncclCommSplit(comms[r], 0, 0, &children[r], nullptr), ok);
  ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(nullptr);
}

class Revoke : public Pair {};

TEST_F(Revoke, CodesOfTheCallsAfterIt) {
  EXPECT_EQ(ncclCommRevoke(nullptr, 7), ok);
  EXPECT_TRUE(refused(ncclCommRevoke(comms[0], 7), ncclInvalidArgument, {"revokeFlags", "7"}));
  expectUsable();
  EXPECT_EQ(ncclCommRevoke(comms[0], NCCL_REVOKE_DEFAULT), ok);
  EXPECT_EQ(stateOf(comms[0]), ok);
  EXPECT_TRUE(refused(ncclCommRevoke(comms[0], 0), ncclInvalidArgument, {"already"}));
  int x = 0;
  EXPECT_TRUE(refused(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, comms[0], nullptr), ncclInvalidUsage, {"revoked"}));
  EXPECT_TRUE(refused(ncclCommFinalize(comms[0]), ncclInvalidArgument, {"revoked"}));
  EXPECT_EQ(ncclCommCount(comms[0], &x), ok);
  EXPECT_EQ(stateOf(comms[1]), ncclRemoteError) << "the others are told";
  EXPECT_EQ(ncclCommRevoke(comms[1], 0), ok) << "and may revoke too";
  EXPECT_EQ(stateOf(comms[1]), ok);
  ncclComm_t children[2];
  splitBoth(comms, children);
  ncclComm_t survivor = nullptr;
  int excluded = 1;
  EXPECT_EQ(ncclCommShrink(comms[0], &excluded, 1, &survivor, nullptr, NCCL_SHRINK_DEFAULT), ok) << ncclGetLastError(nullptr);
  for (ncclComm_t comm : {children[0], children[1], survivor}) EXPECT_EQ(ncclCommDestroy(comm), ok);
}

TEST(RevokeOf, ACommunicatorWhoseOwnerWaits) {
  runWithin(10, "revoke from another thread", [] {
    ncclComm_t comms[2];
    ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ok);
    std::thread owner([&] {
      int x = 0;
      EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, comms[0], nullptr), ncclRemoteError);
    });
    sleepMs(30);
    const auto start = Clock::now();
    EXPECT_EQ(ncclCommRevoke(comms[0], 0), ok);
    EXPECT_LT(secondsSince(start), 1.0);
    owner.join();
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
}

TEST(Shared, AnAbortOfOneIsAnAbortOfAllThatShare) {
  for (const bool share : {false, true}) {
    for (const bool abortsChild : {false, true}) {
      ncclComm_t comms[2], children[2];
      initBoth(comms, share);
      splitBoth(comms, children);
      EXPECT_EQ(ncclCommAbort(abortsChild ? children[0] : comms[0]), ok);
      EXPECT_EQ(stateOf(abortsChild ? comms[1] : children[1]), share ? ncclRemoteError : ok) << "of the other communicator";
      EXPECT_EQ(stateOf(abortsChild ? children[1] : comms[1]), ncclRemoteError);
      EXPECT_EQ(ncclCommAbort(abortsChild ? comms[0] : children[0]), ok);
      EXPECT_EQ(ncclCommAbort(comms[1]), ok);
      EXPECT_EQ(ncclCommAbort(children[1]), ok);
    }
  }
}

TEST(Shared, ChildrenOutliveTheirParentAndARevokedOneSharesNothing) {
  ncclComm_t comms[2], children[2], late[2];
  initBoth(comms, true);
  splitBoth(comms, children);
  for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommRevoke(comm, 0), ok);
  splitBoth(comms, late);
  EXPECT_EQ(ncclCommAbort(comms[0]), ok);
  EXPECT_EQ(stateOf(children[0]), ncclRemoteError) << "shares";
  EXPECT_EQ(stateOf(late[0]), ok) << "does not";
  EXPECT_EQ(ncclCommDestroy(comms[1]), ok);
  for (int r = 0; r < 2; ++r) EXPECT_EQ(ncclCommDestroy(children[r]), ok);
  for (int r = 0; r < 2; ++r) EXPECT_EQ(ncclCommDestroy(late[r]), ok);
}

class Simulate : public Pair {
 protected:
  float estimate(size_t count) {
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    std::vector<float> x(2 * count, 1);
    EXPECT_EQ(ncclGroupStart(), ok);
    for (int r = 0; r < 2; ++r) EXPECT_EQ(ncclAllReduce(&x[count * r], &x[count * r], count, ncclFloat, ncclSum, comms[r], nullptr), ok);
    EXPECT_EQ(ncclGroupSimulateEnd(&info), ok) << ncclGetLastError(nullptr);
    EXPECT_EQ(x, std::vector<float>(2 * count, 1)) << "nothing is launched";
    return info.estimatedTime;
  }
};

TEST_F(Simulate, EstimatesGrowWithTheSize) {
  const float small = estimate(256), middle = estimate(65536), large = estimate(16 << 20);
  EXPECT_GT(small, 0);
  EXPECT_GT(middle, small);
  EXPECT_GT(large, 100 * small);
  expectUsable();
}

TEST_F(Simulate, MessagesAndEmptyGroupsHaveNone) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  info.estimatedTime = 5;
  ASSERT_EQ(ncclGroupStart(), ok);
  EXPECT_EQ(ncclGroupSimulateEnd(&info), ok);
  EXPECT_EQ(info.estimatedTime, -1.0F);
  info.estimatedTime = 5;
  int x = 0;
  ASSERT_EQ(ncclGroupStart(), ok);
  EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, comms[0], nullptr), ok);
  EXPECT_EQ(ncclSend(&x, 1, ncclInt, 1, comms[0], nullptr), ok);
  EXPECT_EQ(ncclGroupSimulateEnd(&info), ok);
  EXPECT_EQ(info.estimatedTime, -1.0F);
  expectUsable();
}

TEST_F(Simulate, Codes) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  EXPECT_TRUE(refused(ncclGroupSimulateEnd(&info), ncclInvalidUsage, {"ncclGroupStart"}));
  EXPECT_TRUE(refused(ncclGroupSimulateEnd(nullptr), ncclInvalidUsage, {"ncclGroupStart"}));
  ASSERT_EQ(ncclGroupStart(), ok);
  info.magic = 1;
  EXPECT_TRUE(refused(ncclGroupSimulateEnd(&info), ncclInvalidArgument, {"NCCL_SIM_INFO_INITIALIZER"}));
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument) << "the group failed with it";
  info = NCCL_SIM_INFO_INITIALIZER;
  info.size = 8;
  ASSERT_EQ(ncclGroupStart(), ok);
  EXPECT_TRUE(refused(ncclGroupSimulateEnd(&info), ncclInvalidArgument, {"NCCL_SIM_INFO_INITIALIZER"}));
  (void)ncclGroupEnd();
  int values[2] = {1, 2};
  ASSERT_EQ(ncclGroupStart(), ok);
  for (int r = 0; r < 2; ++r) EXPECT_EQ(ncclAllReduce(&values[r], &values[r], 1, ncclInt, ncclSum, comms[r], nullptr), ok);
  EXPECT_EQ(ncclGroupSimulateEnd(nullptr), ok) << "NULL launches";
  EXPECT_EQ(values[0], 3);
}

TEST_F(Simulate, CommunicatorsOfTheGroupAreNotMade) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  ncclComm_t fresh = nullptr, child = nullptr;
  ASSERT_EQ(ncclGroupStart(), ok);
  EXPECT_EQ(ncclCommInitRank(&fresh, 1, newId(), 0), ok);
  EXPECT_EQ(ncclCommSplit(comms[0], 0, 0, &child, nullptr), ok);
  EXPECT_EQ(ncclGroupSimulateEnd(&info), ok);
  EXPECT_EQ(info.estimatedTime, -1.0F);
  EXPECT_EQ(fresh, nullptr);
  EXPECT_EQ(child, nullptr);
  expectUsable();
}

// A blocking init that waits for a rank that never comes: its handle is there, and an abort from another thread frees it.
TEST(AbortOf, AnInitInProgress) {
  runWithin(10, "abort of an init", [] {
    ncclComm_t comm = nullptr;
    std::atomic_ref<ncclComm_t> seen(comm);
    ncclResult_t result = ok;
    std::thread owner([&, id = newId()] { result = ncclCommInitRank(&comm, 2, id, 0); });
    while (seen.load() == nullptr) sleepMs(1);
    ncclComm_t const handle = seen.load();
    int n = 0;
    EXPECT_EQ(ncclCommCount(handle, &n), ncclInvalidArgument);
    EXPECT_EQ(stateOf(handle), ncclInProgress);
    EXPECT_EQ(ncclCommDestroy(handle), ncclInvalidArgument) << "only an abort ends it";
    const auto start = Clock::now();
    EXPECT_EQ(ncclCommAbort(handle), ok);
    EXPECT_LT(secondsSince(start), 1.0);
    owner.join();
    EXPECT_EQ(result, ncclRemoteError);
    EXPECT_EQ(comm, nullptr);
    EXPECT_EQ(ncclCommDestroy(handle), ncclInvalidArgument) << "it is gone";
    EXPECT_EQ(ncclCommAbort(handle), ok) << "nothing left to do";
  });
}

// Destroy waits for work on a stream whose peer never comes; an abort from another thread frees it.
TEST(AbortOf, ACommunicatorWithCallsInTheSameGroup) {
  ncclComm_t comms[2];
  ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ok) << ncclGetLastError(nullptr);
  int value = 1;
  ASSERT_EQ(ncclGroupStart(), ok);
  EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comms[0], nullptr), ok);
  EXPECT_EQ(ncclCommAbort(comms[0]), ok) << "the other rank never calls";
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage) << ncclGetLastError(nullptr);
  EXPECT_EQ(value, 1);
  ncclResult_t state = ok;
  EXPECT_EQ(ncclCommGetAsyncError(comms[1], &state), ok);
  EXPECT_EQ(state, ncclRemoteError);
  ASSERT_EQ(ncclGroupStart(), ok);
  EXPECT_EQ(ncclCommAbort(comms[1]), ok);
  EXPECT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(nullptr);
}

TEST(AbortOf, ACommunicatorWhoseDestroyHangs) {
  runWithin(10, "abort of a hanging destroy", [] {
    ncclComm_t comms[2];
    ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ok);
    cudaStream_t stream = nullptr;
    ASSERT_EQ(tuttiStreamCreate(&stream), ok);
    int x = 0;
    ASSERT_EQ(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, comms[0], stream), ok);
    std::thread owner([&] { EXPECT_EQ(ncclCommDestroy(comms[0]), ok); });
    sleepMs(30);
    const auto start = Clock::now();
    EXPECT_EQ(ncclCommAbort(comms[0]), ok);
    owner.join();
    EXPECT_LT(secondsSince(start), 1.0);
    EXPECT_NE(tuttiStreamSynchronize(stream), ok);
    EXPECT_EQ(tuttiStreamDestroy(stream), ok);
    EXPECT_EQ(ncclCommAbort(comms[1]), ok);
  });
}

// Work of a non-blocking communicator that waits for another communicator's stream: an abort does not wait for that.
TEST(AbortOf, WorkThatWaitsForAnotherStream) {
  runWithin(20, "abort beside a stuck stream", [] {
    ncclComm_t stuck[2], comm = nullptr;
    ASSERT_EQ(ncclCommInitAll(stuck, 2, nullptr), ok);
    cudaStream_t stream = nullptr;
    ASSERT_EQ(tuttiStreamCreate(&stream), ok);
    int x[3] = {1, 2, 3};
    ASSERT_EQ(ncclAllReduce(&x[0], &x[0], 1, ncclInt, ncclSum, stuck[0], stream), ok);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ASSERT_EQ(ncclCommInitRankConfig(&comm, 1, newId(), 0, &config), ncclInProgress);
    while (stateOf(comm) == ncclInProgress) sleepMs(1);
    ASSERT_EQ(ncclGroupStart(), ok);
    EXPECT_EQ(ncclAllReduce(&x[1], &x[1], 1, ncclInt, ncclSum, comm, stream), ok);
    EXPECT_EQ(ncclAllReduce(&x[2], &x[2], 1, ncclInt, ncclSum, comm, nullptr), ok);
    EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
    EXPECT_EQ(stateOf(comm), ncclInProgress);
    const auto start = Clock::now();
    EXPECT_EQ(ncclCommAbort(comm), ok);
    EXPECT_LT(secondsSince(start), 1.0);
    for (ncclComm_t c : stuck) EXPECT_EQ(ncclCommAbort(c), ok);
    EXPECT_EQ(tuttiStreamDestroy(stream), ok);
  });
}

// A call that waits for a rank that has left is told which.
TEST(Departed, APeerIsNamed) {
  RankThreads threads(1);  // for its watchdog
  threads.run([](int, ncclComm_t) {
    ncclComm_t comms[2];
    ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ok);
    EXPECT_EQ(ncclCommDestroy(comms[1]), ok);
    int x = 0;
    EXPECT_TRUE(refused(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, comms[0], nullptr), ncclRemoteError, {"rank 1"}));
    EXPECT_EQ(ncclCommDestroy(comms[0]), ok);
  });
}

// One that is still there, and makes no more calls: of collectives and of messages.
TEST(Departed, APeerThatHasFinalizedIsNamed) {
  RankThreads threads(1);  // for its watchdog
  threads.run([](int, ncclComm_t) {
    for (const bool isMessage : {false, true}) {
      ncclComm_t comms[2];
      ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ok);
      EXPECT_EQ(ncclCommFinalize(comms[1]), ok);
      EXPECT_EQ(stateOf(comms[0]), ok);
      int x = 0;
      const ncclResult_t result =
          isMessage ? ncclRecv(&x, 1, ncclInt, 1, comms[0], nullptr) : ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, comms[0], nullptr);
      EXPECT_TRUE(refused(result, ncclRemoteError, {"rank 1 has finalized"}));
      EXPECT_EQ(ncclCommDestroy(comms[1]), ok);
      EXPECT_EQ(ncclCommDestroy(comms[0]), ok);
    }
  });
}

// What came before counts: it is there, though its sender makes no more calls.
TEST(Departed, WhatAPeerSentBeforeItFinalizedArrives) {
  RankThreads threads(1);
  threads.run([](int, ncclComm_t) {
    ncclComm_t comms[2];
    ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ok);
    int x = 41;
    int y = 0;
    EXPECT_EQ(ncclSend(&x, 1, ncclInt, 0, comms[1], nullptr), ok);
    EXPECT_EQ(ncclCommFinalize(comms[1]), ok);
    EXPECT_EQ(ncclRecv(&y, 1, ncclInt, 1, comms[0], nullptr), ok) << ncclGetLastError(comms[0]);
    EXPECT_EQ(y, 41);
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
}

// Found by tests/gpu/check faults: the state was an error, and nothing told whose.
TEST(AsyncError, NamesItsCauseThoughNoCallHadWaited) {
  ncclComm_t comms[2];
  ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ok) << ncclGetLastError(nullptr);
  EXPECT_EQ(ncclGetUniqueId(nullptr), ncclInvalidArgument) << "another text before";
  EXPECT_EQ(ncclCommAbort(comms[1]), ok);
  EXPECT_EQ(stateOf(comms[0]), ncclRemoteError);
  EXPECT_NE(std::string(ncclGetLastError(comms[0])).find("rank 1 aborted its communicator"), std::string::npos)
      << ncclGetLastError(comms[0]);
  EXPECT_EQ(ncclCommAbort(comms[0]), ok);
}

/// What a child that was forked now sees; it ends at once.
template <class Body>
bool holdsInChild(Body&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int outcome = -1;
  return waitpid(child, &outcome, 0) == child && WIFEXITED(outcome) && WEXITSTATUS(outcome) == 0;
}

TEST(Fork, WhileCommunicatorsLiveIsRefusedInTheChild) {
  ncclComm_t comms[2];
  ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ok) << ncclGetLastError(nullptr);
  EXPECT_TRUE(holdsInChild([&] {
    int version = 0;
    ncclUniqueId id;
    return refused(ncclGetUniqueId(&id), ncclInvalidUsage, {"was forked from process", "2 communicators"}) &&
           refused(ncclCommDestroy(comms[0]), ncclInvalidUsage, {"spawn"}) && ncclGetVersion(&version) == ncclInvalidUsage;
  }));
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ok) << "the parent goes on";
  EXPECT_TRUE(holdsInChild([] {
    int version = 0;
    return ncclGetVersion(&version) == ok;
  })) << "none lives any more";
}

}  // namespace
}  // namespace tutti::api_test::lifecycle_test
