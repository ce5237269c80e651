// ncclCommAbort gets everybody out: bounded in time, from another thread, whatever the communicator is doing.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "conformance/harness.h"
#include "tutti.h"

namespace tutti::conformance::abort_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void sleepMs(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

struct Stuck {
  const char* name;
  std::function<ncclResult_t(ncclComm_t)> call;
};

std::vector<char>& memory() {
  static std::vector<char> bytes(16 << 20);
  return bytes;
}

const std::vector<Stuck>& stuckCalls() {
  static const std::vector<Stuck> calls = {
      {"small all-reduce", [](ncclComm_t c) { return ncclAllReduce(memory().data(), memory().data(), 1, ncclInt, ncclSum, c, nullptr); }},
      {"large all-reduce",
       [](ncclComm_t c) { return ncclAllReduce(memory().data(), memory().data(), 4 << 20, ncclInt, ncclSum, c, nullptr); }},
      {"large send", [](ncclComm_t c) { return ncclSend(memory().data(), 16 << 20, ncclInt8, 1, c, nullptr); }},
      {"recv", [](ncclComm_t c) { return ncclRecv(memory().data(), 16, ncclInt8, 1, c, nullptr); }},
      {"group of many",
       [](ncclComm_t c) {
         (void)ncclGroupStart();
         for (int i = 0; i < 5; ++i) (void)ncclAllReduce(memory().data(), memory().data(), 1000, ncclInt, ncclSum, c, nullptr);
         (void)ncclRecv(memory().data() + 8000, 16, ncclInt8, 1, c, nullptr);
         return ncclGroupEnd();
       }},
      {"work on a stream, then synchronize",
       [](ncclComm_t c) {
         cudaStream_t stream = nullptr;
         EXPECT_EQ(tuttiStreamCreate(&stream), ok);
         (void)ncclAllReduce(memory().data(), memory().data(), 1000, ncclInt, ncclSum, c, stream);
         const ncclResult_t result = tuttiStreamSynchronize(stream);
         EXPECT_EQ(tuttiStreamDestroy(stream), ok);
         return result;
       }},
  };
  return calls;
}

// The owner is blocked in a call whose peer never comes; another thread aborts.
TEST(Abort, FreesAnOwnerThatWaitsForAPeer) {
  for (const Stuck& stuck : stuckCalls()) {
    SCOPED_TRACE(stuck.name);
    runWithin(30, stuck.name, [&] {
      ncclComm_t comms[2];
      ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ok);
      std::atomic<bool> returned{false};
      ncclResult_t result = ok;
      std::thread owner([&] {
        result = stuck.call(comms[0]);
        returned = true;
      });
      sleepMs(50);
      EXPECT_FALSE(returned) << "it should wait for its peer";
      const auto start = Clock::now();
      EXPECT_EQ(ncclCommAbort(comms[0]), ok);
      EXPECT_LT(secondsSince(start), 1.0);
      owner.join();
      EXPECT_LT(secondsSince(start), 2.0);
      EXPECT_NE(result, ok);
      EXPECT_NE(result, ncclInProgress);
      EXPECT_STRNE(ncclGetLastError(nullptr), "");
      ncclResult_t state = ok;
      EXPECT_EQ(ncclCommGetAsyncError(comms[1], &state), ok);
      EXPECT_NE(state, ok) << "the peer is told";
      int x = 0;
      EXPECT_NE(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, comms[1], nullptr), ok) << "and does not wait for the one that left";
      EXPECT_EQ(ncclCommAbort(comms[1]), ok);
    });
  }
}

// Peers that wait for the aborted rank get an error too, instead of waiting for ever.
TEST(Abort, OfOneRankFreesItsPeers) {
  runWithin(30, "abort of rank 3 of 4", [] {
    ncclComm_t comms[4];
    ASSERT_EQ(ncclCommInitAll(comms, 4, nullptr), ok);
    std::vector<std::thread> owners;
    for (int r = 0; r < 3; ++r) {
      owners.emplace_back([comm = comms[r]] {
        std::vector<int> x(100000);
        EXPECT_NE(ncclAllReduce(x.data(), x.data(), x.size(), ncclInt, ncclSum, comm, nullptr), ok);
        EXPECT_EQ(ncclCommDestroy(comm), ok);
      });
    }
    sleepMs(50);
    const auto start = Clock::now();
    EXPECT_EQ(ncclCommAbort(comms[3]), ok);
    for (std::thread& owner : owners) owner.join();
    EXPECT_LT(secondsSince(start), 2.0);
  });
}

TEST(Abort, OfAllRanksInAGroup) {
  runWithin(30, "two aborts in a group", [] {
    ncclComm_t comms[2];
    ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ok);
    ASSERT_EQ(ncclGroupStart(), ok);
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ok);
    EXPECT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(nullptr);
    int count = 0;
    EXPECT_EQ(ncclCommCount(comms[0], &count), ncclInvalidArgument);
  });
}

// A group that waits for a stream, which itself waits for another communicator whose peer never came.
TEST(Abort, FreesAGroupThatWaitsForAStream) {
  ncclComm_t a[2], b[2];
  ASSERT_EQ(ncclCommInitAll(a, 2, nullptr), ok);
  ASSERT_EQ(ncclCommInitAll(b, 2, nullptr), ok);
  cudaStream_t stream;
  ASSERT_EQ(tuttiStreamCreate(&stream), ok);
  float x = 1, y = 0, z = 0, w = 0;
  ASSERT_EQ(ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, a[0], stream), ok);
  std::atomic<ncclResult_t> result = ncclInProgress;
  std::thread owner([&] {
    (void)ncclGroupStart();
    (void)ncclAllReduce(&x, &z, 1, ncclFloat, ncclSum, b[0], nullptr);
    (void)ncclAllReduce(&x, &w, 1, ncclFloat, ncclSum, b[0], stream);
    result = ncclGroupEnd();
  });
  sleepMs(50);
  EXPECT_EQ(result, ncclInProgress);
  const auto start = Clock::now();
  EXPECT_EQ(ncclCommAbort(b[0]), ok);
  EXPECT_LT(secondsSince(start), 1.0);
  owner.join();
  EXPECT_NE(result, ok);
  float other = 0;
  EXPECT_EQ(ncclAllReduce(&x, &other, 1, ncclFloat, ncclSum, a[1], nullptr), ok) << "the stream's own work goes on";
  EXPECT_EQ(tuttiStreamDestroy(stream), ok);
  EXPECT_EQ(other, 2.0F);
  EXPECT_EQ(ncclCommAbort(b[1]), ok);
  for (ncclComm_t c : a) EXPECT_EQ(ncclCommDestroy(c), ok);
}

// Ranks that use the communicator at full speed while it is aborted under them, again and again.
TEST(Abort, WhileRanksAreBusy) {
  for (int round = 0; round < 20; ++round) {
    runWithin(30, "abort of busy ranks", [round] {
      ncclComm_t comms[3];
      ASSERT_EQ(ncclCommInitAll(comms, 3, nullptr), ok);
      std::vector<std::thread> owners;
      for (ncclComm_t comm : comms) {
        owners.emplace_back([comm, round] {
          std::vector<int> x(round % 2 == 0 ? 10 : 200000);
          ncclResult_t result = ok;
          while (result == ok) result = ncclAllReduce(x.data(), x.data(), x.size(), ncclInt, ncclSum, comm, nullptr);
        });
      }
      sleepMs(round);
      const auto start = Clock::now();
      for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ok);
      EXPECT_LT(secondsSince(start), 1.0);
      for (std::thread& owner : owners) owner.join();
    });
  }
}

// Other communicators of the same process and threads go on as if nothing had happened.
TEST(Abort, LeavesOtherCommunicatorsAlone) {
  runWithin(30, "abort beside another communicator", [] {
    ncclComm_t doomed[2], fine[2];
    ASSERT_EQ(ncclCommInitAll(doomed, 2, nullptr), ok);
    ASSERT_EQ(ncclCommInitAll(fine, 2, nullptr), ok);
    EXPECT_EQ(ncclCommAbort(doomed[0]), ok);
    int x[2] = {1, 2};
    ASSERT_EQ(ncclGroupStart(), ok);
    for (int r = 0; r < 2; ++r) EXPECT_EQ(ncclAllReduce(&x[r], &x[r], 1, ncclInt, ncclSum, fine[r], nullptr), ok);
    EXPECT_EQ(ncclGroupEnd(), ok);
    EXPECT_EQ(x[0], 3);
    EXPECT_EQ(ncclCommDestroy(doomed[1]), ok);
    for (ncclComm_t comm : fine) EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
}

// Communicators end in any order, and a rank may leave while its peer still reads what it sent.
TEST(End, DestroyInAnyOrderAndEarly) {
  for (int round = 0; round < 50; ++round) {
    runWithin(30, "destroy right after a call", [round] {
      ncclUniqueId id;
      ASSERT_EQ(ncclGetUniqueId(&id), ok);
      std::vector<std::thread> ranks;
      for (int r = 0; r < 4; ++r) {
        ranks.emplace_back([=] {
          ncclComm_t comm = nullptr;
          ASSERT_EQ(ncclCommInitRank(&comm, 4, id, r), ok);
          std::vector<int> x(round % 2 == 0 ? 100 : 100000, 1);
          EXPECT_EQ(ncclBcast(x.data(), x.size(), ncclInt, round % 4, comm, nullptr), ok);
          EXPECT_EQ(ncclCommDestroy(comm), ok);
          x.assign(x.size(), 0);
        });
      }
      for (std::thread& rank : ranks) rank.join();
    });
  }
}

}  // namespace
}  // namespace tutti::conformance::abort_test
