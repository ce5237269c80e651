// First calls of non-blocking communicators on GPUs: they return although ranks are missing, and go on whenever a state is asked.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "conformance/gpu/faults.h"

namespace tutti::conformance::opening_test {
namespace {

using faults::kSlow;
using faults::Stopwatch;

/// Two ranks on two GPUs, both of this thread.
class GpuOpening : public testing::Test {
 protected:
  using Ranks = std::array<ncclComm_t, 2>;

  void SetUp() override {
    for (int r = 0; r < 2; ++r) {
      const UseGpu use(gpus, r);
      data.push_back(std::make_unique<GpuInts>(50'000));
    }
  }
  Ranks open() {
    ncclUniqueId id;
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    Ranks comms{};
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (int r = 0; r < 2; ++r) {
      const UseGpu use(gpus, r);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      const ncclResult_t begun = ncclCommInitRankConfig(&comms[static_cast<size_t>(r)], 2, id, r, &config);
      EXPECT_TRUE(begun == ncclSuccess || begun == ncclInProgress);
    }
    EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
    settleAll(comms);
    return comms;
  }
  static ncclResult_t settle(ncclComm_t comm) { return conformance::settle(comm, 10 * kSlow); }
  /// Both in turn: set-ups are driven by those who ask.
  static void settleAll(const Ranks& comms) {
    ncclResult_t states[] = {ncclInProgress, ncclInProgress};
    for (const Stopwatch watch; (states[0] == ncclInProgress || states[1] == ncclInProgress) && watch.seconds() < 10 * kSlow;)
      for (size_t r = 0; r < 2; ++r) states[r] = stateOf(comms[r]);
    for (const ncclResult_t state : states) ASSERT_EQ(state, ncclSuccess);
  }
  ncclResult_t call(ncclComm_t comm, size_t rank) { return sum(*data[rank], data[rank]->count(), comm); }
  void expectSums(int expected) {
    for (int r = 0; r < 2; ++r) {
      const UseGpu use(gpus, r);
      synchronize(gpus);
      for (size_t i = 0; i < 50'000; ++i) ASSERT_EQ(data[static_cast<size_t>(r)]->data()[i], expected);
    }
  }
  void destroy(const Ranks& comms) {
    for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
    for (const ncclComm_t comm : comms) EXPECT_EQ(settle(comm), ncclSuccess);
    for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }

  FakeGpus gpus{2};
  std::vector<std::unique_ptr<GpuInts>> data;
};

TEST_F(GpuOpening, ACallReturnsBeforeItsPeersCome) {
  const Ranks comms = open();
  ASSERT_EQ(call(comms[0], 0), ncclInProgress) << ncclGetLastError(comms[0]);
  for (int k = 0; k < 100; ++k) EXPECT_EQ(stateOf(comms[0]), ncclInProgress);
  ASSERT_EQ(call(comms[1], 1), ncclInProgress) << ncclGetLastError(comms[1]);
  for (const ncclComm_t comm : comms) EXPECT_EQ(settle(comm), ncclSuccess) << ncclGetLastError(comm);
  expectSums(2);
  for (size_t r = 0; r < 2; ++r) ASSERT_EQ(call(comms[r], r), ncclInProgress) << "what is open is launched at once";
  for (const ncclComm_t comm : comms) EXPECT_EQ(stateOf(comm), ncclSuccess);
  expectSums(4);
  destroy(comms);
}

/// In whatever order the states are asked, the launches are in that of the group: else kernels of two communicators on one stream would
/// wait for each other.
TEST_F(GpuOpening, CommunicatorsOfAGroupGoOnTogether) {
  const Ranks first = open();
  const Ranks second = open();
  for (size_t r = 0; r < 2; ++r) {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (const Ranks* comms : {&first, &second}) (void)call((*comms)[r], r);
    ASSERT_EQ(ncclGroupEnd(), ncclInProgress);
  }
  EXPECT_EQ(settle(second[0]), ncclSuccess);
  EXPECT_EQ(stateOf(first[0]), ncclSuccess);
  EXPECT_EQ(settle(second[1]), ncclSuccess);
  EXPECT_EQ(settle(first[1]), ncclSuccess);
  expectSums(4);
  destroy(second);
  destroy(first);
}

TEST_F(GpuOpening, AnAbortEndsIt) {
  const Ranks comms = open();
  ASSERT_EQ(call(comms[0], 0), ncclInProgress);
  const Stopwatch watch;
  EXPECT_EQ(ncclCommAbort(comms[0]), ncclSuccess);
  EXPECT_EQ(settle(comms[1]), ncclRemoteError);
  EXPECT_EQ(ncclCommAbort(comms[1]), ncclSuccess);
  EXPECT_LT(watch.seconds(), kSlow);
}

TEST_F(GpuOpening, OneThatEndsEndsTheGroup) {
  const Ranks first = open();
  const Ranks second = open();
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (const Ranks* comms : {&first, &second}) (void)call((*comms)[0], 0);
  ASSERT_EQ(ncclGroupEnd(), ncclInProgress);
  EXPECT_EQ(ncclCommAbort(first[0]), ncclSuccess);
  EXPECT_NE(settle(second[0]), ncclSuccess) << "its launch would have come after one that never comes";
  for (const ncclComm_t comm : {first[1], second[0], second[1]}) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

TEST_F(GpuOpening, ADeadlineHolds) {
  const ScopedSetting limit("TUTTI_TIMEOUT_MS", "200");
  const Ranks comms = open();
  ASSERT_EQ(call(comms[0], 0), ncclInProgress);
  EXPECT_EQ(settle(comms[0]), ncclRemoteError);
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

TEST_F(GpuOpening, DifferentCallsAreNoticed) {
  const Ranks comms = open();
  ASSERT_EQ(call(comms[0], 0), ncclInProgress);
  EXPECT_EQ(ncclBroadcast(data[1]->data(), data[1]->data(), 50'000, ncclInt, 0, comms[1], nullptr), ncclInvalidUsage);
  EXPECT_EQ(settle(comms[0]), ncclInvalidUsage);
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

}  // namespace
}  // namespace tutti::conformance::opening_test
