// A process is killed in the middle of any operation, of values that travel in heads, in slots, by system calls, or straight into memory of
// the others: every survivor is told at once whom it lacks, and they go on without it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "faults/hosts.h"
#include "faults/process_ranks.h"

namespace tutti::faults::killed_calls_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
constexpr int kRanks = 3;
using Self = ProcessRanks::Self;

/// Rank, number of elements for each rank, and buffers for as many of all ranks.
struct Own {
  ncclComm_t comm;
  int rank;
  size_t count;
  int* in;
  int* out;
};
struct Operation {
  const char* name;
  std::function<ncclResult_t(const Own&)> call;
};

/// The roots of the rooted ones are a survivor, and the one that dies, rank 1.
const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = {
      {"AllGather", [](const Own& o) { return ncclAllGather(o.in, o.out, o.count, ncclInt, o.comm, nullptr); }},
      {"ReduceScatter", [](const Own& o) { return ncclReduceScatter(o.in, o.out, o.count, ncclInt, ncclSum, o.comm, nullptr); }},
      {"AlltoAll", [](const Own& o) { return ncclAlltoAll(o.in, o.out, o.count, ncclInt, o.comm, nullptr); }},
      {"Broadcast from 0", [](const Own& o) { return ncclBroadcast(o.in, o.out, o.count, ncclInt, 0, o.comm, nullptr); }},
      {"Broadcast from 1", [](const Own& o) { return ncclBroadcast(o.in, o.out, o.count, ncclInt, 1, o.comm, nullptr); }},
      {"Reduce to 0", [](const Own& o) { return ncclReduce(o.in, o.out, o.count, ncclInt, ncclSum, 0, o.comm, nullptr); }},
      {"Reduce to 1", [](const Own& o) { return ncclReduce(o.in, o.out, o.count, ncclInt, ncclSum, 1, o.comm, nullptr); }},
      {"Gather to 0", [](const Own& o) { return ncclGather(o.in, o.out, o.count, ncclInt, 0, o.comm, nullptr); }},
      {"Scatter from 1", [](const Own& o) { return ncclScatter(o.in, o.out, o.count, ncclInt, 1, o.comm, nullptr); }},
      {"Send and Recv", [](const Own& o) { return passOn(o.comm, o.rank, kRanks, o.in, o.out, o.count); }},
  };
  return all;
}

struct Buffers {
  Buffers(size_t ints, bool fromMemAlloc) : isAllocated(fromMemAlloc) {
    if (isAllocated) {
      EXPECT_EQ(ncclMemAlloc(&memory, ints * sizeof(int)), ok);
    } else {
      memory = std::malloc(ints * sizeof(int));
    }
    std::memset(memory, 0, ints * sizeof(int));
  }
  ~Buffers() {
    if (isAllocated) {
      EXPECT_EQ(ncclMemFree(memory), ok);
    } else {
      std::free(memory);
    }
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  const bool isAllocated;
  void* memory = nullptr;
};

struct Case {
  size_t count;       ///< of each rank
  bool fromMemAlloc;  ///< all buffers
  std::vector<int> hosts;
};

void kill(const Operation& operation, const Case& how) {
  constexpr int kDoomed = 1;
  ProcessRanks children(kRanks, [&](Self& self) {
    playNamedHost(how.hosts[static_cast<size_t>(self.index())]);
    ncclComm_t comm = joinAll(self);
    const Buffers in(how.count * kRanks, how.fromMemAlloc), out(how.count * kRanks, how.fromMemAlloc);
    const Own own{comm, self.index(), how.count, static_cast<int*>(in.memory), static_cast<int*>(out.memory)};
    EXPECT_EQ(operation.call(own), ok) << lastError();
    self.note(0, getpid());
    self.meet(1);
    ncclResult_t result = ok;
    while (result == ok) result = operation.call(own);
    const int64_t ended = std::chrono::steady_clock::now().time_since_epoch().count();
    self.note(1, ended);
    EXPECT_EQ(result, ncclRemoteError) << lastError();
    EXPECT_TRUE(mentions(lastError(), {"rank 1", std::to_string(self.number(kDoomed, 0)), "the last "}));
    EXPECT_TRUE(mentions(verdictOf(comm), {R"({"rank":1,"host":")"}));
    self.awaitAllowed(1);
    ncclComm_t child = nullptr;
    int dead = kDoomed;
    ASSERT_EQ(ncclCommShrink(comm, &dead, 1, &child, nullptr, NCCL_SHRINK_ABORT), ok) << lastError();
    EXPECT_EQ(sumOnce(child, kRanks - 1), ok) << lastError();
    EXPECT_EQ(ncclCommDestroy(child), ok) << lastError();
    abortPromptly(comm);
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const int64_t death = std::chrono::steady_clock::now().time_since_epoch().count();
  children.kill(kDoomed);
  children.allow(1);
  children.expectAllWell({kDoomed});
  for (const int child : {0, 2})
    EXPECT_LT(static_cast<double>(children.number(child, 1) - death) * 1e-9, kPromptSeconds) << "child " << child;
}

void killInEach(const Case& how) {
  for (const Operation& operation : operations()) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, operation.name);
    kill(operation, how);
  }
}

TEST(KilledCalls, OfAFewBytes) { killInEach({3, false, {0, 0, 0}}); }
TEST(KilledCalls, OfSlots) { killInEach({20'000, false, {0, 0, 0}}); }
TEST(KilledCalls, OfLargeBuffers) { killInEach({1'500'000, false, {0, 0, 0}}); }
TEST(KilledCalls, OfLargeBuffersThatOthersCanReach) { killInEach({1'500'000, true, {0, 0, 0}}); }
TEST(KilledCalls, OfLargeBuffersThatAreCopiedBySystemCall) {
  setenv("TUTTI_CMA", "1", 1);
  killInEach({1'500'000, false, {0, 0, 0}});
  unsetenv("TUTTI_CMA");
}
TEST(KilledCalls, OfAFewBytesBetweenHosts) { killInEach({3, false, {0, 1, 1}}); }
TEST(KilledCalls, OfLargeBuffersBetweenHosts) { killInEach({500'000, false, {0, 1, 2}}); }

}  // namespace
}  // namespace tutti::faults::killed_calls_test
