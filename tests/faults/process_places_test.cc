// Results that are written to the outputs of other processes at once (TUTTI_PAST_CACHE_BYTES): right wherever buffers lie and whoever has
// which kind, and no output is written to after its call has failed, also where a writer was stopped in the middle and goes on later.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "faults/process_ranks.h"

namespace tutti::faults {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
using Self = ProcessRanks::Self;

/// Memory of ncclMemAlloc, or any other.
class Memory {
 public:
  Memory(size_t bytes, bool fromMemAlloc) {
    if (fromMemAlloc) {
      EXPECT_EQ(ncclMemAlloc(&allocated_, bytes), ok) << ncclGetLastError(nullptr);
    } else {
      own_.resize(bytes);
    }
  }
  ~Memory() { EXPECT_EQ(ncclMemFree(allocated_), ok); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() { return allocated_ != nullptr ? static_cast<std::byte*>(allocated_) : own_.data(); }

 private:
  void* allocated_ = nullptr;
  std::vector<std::byte> own_;
};

int valueAt(size_t i, int rank, int round) { return static_cast<int>(i * 2654435761U >> 8) + rank * 77 + round; }

void placeEverything() {
  setenv("TUTTI_PAST_CACHE_BYTES", "4096", 1);
  setenv("TUTTI_ALGO", "allreduce:twoshot", 1);
}

struct Call {
  size_t count;
  size_t inOffset;   ///< in bytes
  size_t outOffset;
  bool inPlace;
};

constexpr size_t kMost = (2 << 20) + 4097;

/// `fromMemAlloc`: the ranks whose buffers are such, a bit each.
void sumAll(Self& self, ncclComm_t comm, const Call& call, uint32_t fromMemAlloc, int round) {
  constexpr size_t kGuard = 64;
  const size_t bytes = call.count * sizeof(int);
  const bool isAllocated = (fromMemAlloc >> self.index() & 1) != 0;
  Memory inMemory(call.inOffset + bytes, isAllocated);
  Memory outMemory(call.outOffset + bytes + kGuard, isAllocated);
  auto* const out = reinterpret_cast<int*>(outMemory.data() + call.outOffset);
  auto* const in = call.inPlace ? out : reinterpret_cast<int*>(inMemory.data() + call.inOffset);
  std::memset(outMemory.data(), 0x5a, call.outOffset + bytes + kGuard);
  for (size_t i = 0; i < call.count; ++i) in[i] = valueAt(i, self.index(), round);
  const std::string text = std::to_string(call.count) + " ints, offsets " + std::to_string(call.inOffset) + " and " +
                           std::to_string(call.outOffset) + (call.inPlace ? ", in place" : "");
  ASSERT_EQ(ncclAllReduce(in, out, call.count, ncclInt, ncclSum, comm, nullptr), ok) << ncclGetLastError(comm);
  for (size_t i = 0; i < call.count; ++i) {
    int expected = 0;
    for (int rank = 0; rank < self.count(); ++rank) expected += valueAt(i, rank, round);
    ASSERT_EQ(out[i], expected) << "element " << i << " of " << text;
    ASSERT_TRUE(call.inPlace || in[i] == valueAt(i, self.index(), round)) << "input " << i << " of " << text;
  }
  const std::byte* const begin = outMemory.data();
  const auto isLeft = [](std::byte b) { return b == std::byte{0x5a}; };
  EXPECT_TRUE(std::all_of(begin, begin + call.outOffset, isLeft)) << text;
  EXPECT_TRUE(std::all_of(begin + call.outOffset + bytes, begin + call.outOffset + bytes + kGuard, isLeft)) << text;
}

TEST(ProcessPlaces, ResultsAreRightWhereverBuffersLie) {
  for (const int ranks : {2, 3, 4}) {
    ProcessRanks children(ranks, [ranks](Self& self) {
      placeEverything();
      ncclComm_t comm = joinAll(self);
      const uint32_t all = (1U << ranks) - 1;
      int round = 0;
      for (const uint32_t fromMemAlloc : {all, 0U, 1U, all - 1}) {
        for (const size_t count : {size_t{5000}, size_t{65'536}, size_t{262'147}, kMost}) {
          const bool isOdd = self.index() % 2 == 1;
          for (const bool inPlace : {false, true}) {
            sumAll(self, comm, {count, 0, 0, inPlace}, fromMemAlloc, round++);
            sumAll(self, comm, {count, isOdd ? 4U : 100U, isOdd ? 4092U : 12U, inPlace}, fromMemAlloc, round++);
          }
          if (testing::Test::HasFatalFailure()) return;
        }
      }
      EXPECT_EQ(ncclCommDestroy(comm), ok);
    });
    children.expectAllWell({}, 60);
  }
}

/// Calls go on and on; one rank is stopped at some moment of them. The other's call ends by its deadline, or by an abort from another
/// thread; what it does with its memory from then on is its own business, whenever the stopped one goes on.
void playStop(int afterUs, bool aborts) {
  constexpr size_t kCount = 4 << 20;
  ProcessRanks children(2, [aborts](Self& self) {
    placeEverything();
    if (!aborts) setenv("TUTTI_TIMEOUT_MS", "200", 1);
    ncclComm_t comm = joinAll(self);
    Memory in(kCount * sizeof(int), true);
    Memory out(kCount * sizeof(int), true);
    auto* const values = reinterpret_cast<int*>(out.data());
    self.meet(1);
    std::thread aborter;
    if (aborts && self.index() == 1) {
      aborter = std::thread([&self, comm] {
        self.awaitAllowed(2);
        abortPromptly(comm);
      });
    }
    ncclResult_t result = ok;
    while (result == ok) result = ncclAllReduce(in.data(), values, kCount, ncclInt, ncclSum, comm, nullptr);
    EXPECT_TRUE(result == ncclRemoteError || (aborts && result == ncclInvalidArgument)) << ncclGetErrorString(result);
    if (self.index() == 0) {
      self.reach(4);
      EXPECT_EQ(ncclCommAbort(comm), ok);
      return;
    }
    if (aborter.joinable()) aborter.join();
    std::fill(values, values + kCount, 0x1234567);
    self.reach(3);
    self.awaitStage(0, 4);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(std::all_of(values, values + kCount, [](int value) { return value == 0x1234567; })) << "written to after the call";
    EXPECT_EQ(aborts ? ok : ncclCommAbort(comm), ok);
    // What was taken back, nobody can map: a call with it is right all the same, beside one that is new.
    ncclComm_t again = nullptr;
    ASSERT_EQ(ncclCommInitRank(&again, 1, self.id(2, 1), 0), ok);
    EXPECT_EQ(ncclAllReduce(values, values, kCount, ncclInt, ncclSum, again, nullptr), ok) << ncclGetLastError(again);
    EXPECT_EQ(ncclCommDestroy(again), ok);
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  std::this_thread::sleep_for(std::chrono::microseconds(20'000 + afterUs));
  children.signal(0, SIGSTOP);
  children.allow(2);
  ASSERT_TRUE(children.awaitStage(1, 3)) << children.end(1).text;
  children.signal(0, SIGCONT);
  children.expectAllWell();
}

TEST(ProcessPlaces, AStoppedWriterLeavesMemoryAloneAfterTheDeadline) {
  for (int i = 0; i < 6; ++i) playStop(i * 1370, false);
}

TEST(ProcessPlaces, AStoppedWriterLeavesMemoryAloneAfterAnAbort) {
  for (int i = 0; i < 6; ++i) playStop(i * 1710, true);
}

/// The survivors of a failed call go on with the same memory, of which each has taken a part back or not.
TEST(ProcessPlaces, MemoryThatWasTakenBackServesLaterCalls) {
  constexpr size_t kCount = 1 << 20;
  ProcessRanks children(3, [](Self& self) {
    placeEverything();
    setenv("TUTTI_TIMEOUT_MS", "200", 1);
    ncclComm_t comm = joinAll(self);
    Memory in(kCount * sizeof(int), true);
    Memory out(kCount * sizeof(int), true);
    auto* const from = reinterpret_cast<int*>(in.data());
    auto* const to = reinterpret_cast<int*>(out.data());
    self.meet(1);
    ncclResult_t result = ok;
    while (result == ok) result = ncclAllReduce(from, to, kCount, ncclInt, ncclSum, comm, nullptr);
    EXPECT_EQ(result, ncclRemoteError);
    if (self.index() == 0) return;
    EXPECT_EQ(ncclCommAbort(comm), ok);
    ncclComm_t rest = nullptr;
    ASSERT_EQ(ncclCommInitRank(&rest, 2, self.id(1, 1), self.index() - 1), ok) << ncclGetLastError(nullptr);
    for (int round = 0; round < 3; ++round) {
      for (size_t i = 0; i < kCount; ++i) from[i] = valueAt(i, self.index(), round);
      std::fill(to, to + kCount, -1);
      ASSERT_EQ(ncclAllReduce(from, to, kCount, ncclInt, ncclSum, rest, nullptr), ok) << ncclGetLastError(rest);
      for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(to[i], valueAt(i, 1, round) + valueAt(i, 2, round)) << i;
    }
    EXPECT_EQ(ncclCommDestroy(rest), ok);
    self.reach(2);
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  children.signal(0, SIGSTOP);
  for (const int survivor : {1, 2}) ASSERT_TRUE(children.awaitStage(survivor, 2)) << children.end(survivor).text;
  children.kill(0);
  children.expectAllWell({0});
}

}  // namespace
}  // namespace tutti::faults
