// Results that are written to the outputs of other processes at once, through caches and past them (TUTTI_PAST_CACHE_BYTES): right wherever
// buffers lie and whoever has which kind, and no output is written to after its call has failed, also where a writer was stopped in the
// middle and goes on later.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "faults/process_ranks.h"

namespace tutti::faults::process_places_test {
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

/// Small enough for sums of a few.
int valueAt(size_t i, int rank, int round) { return static_cast<int>((i * 2654435761U >> 8) & 0xffffff) + rank * 77 + round; }
int sumAt(size_t i, int ranks, int round) { return ranks * valueAt(i, 0, round) + 77 * (ranks * (ranks - 1) / 2); }

/// `bytes`: calls of so many and more go past the caches. What goes through them is placed only if a rank's part is long.
void placeResults(const char* bytes) {
  setenv("TUTTI_PAST_CACHE_BYTES", bytes, 1);
  setenv("TUTTI_ALGO", "allreduce:twoshot", 1);
}
void placeEverything() { placeResults("4096"); }

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
    const int expected = sumAt(i, self.count(), round);
    if (out[i] != expected) FAIL() << out[i] << " instead of " << expected << ", element " << i << " of " << text;
    if (!call.inPlace && in[i] != valueAt(i, self.index(), round)) FAIL() << "input " << i << " of " << text << " has become " << in[i];
  }
  const std::byte* const begin = outMemory.data();
  const auto isLeft = [](std::byte b) { return b == std::byte{0x5a}; };
  EXPECT_TRUE(std::all_of(begin, begin + call.outOffset, isLeft)) << text;
  EXPECT_TRUE(std::all_of(begin + call.outOffset + bytes, begin + call.outOffset + bytes + kGuard, isLeft)) << text;
}

class PastCaches : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(, PastCaches, testing::Values("4096", "1099511627776"));

TEST_P(PastCaches, ResultsAreRightWhereverBuffersLie) {
  for (const int ranks : {2, 3, 4}) {
    ProcessRanks children(ranks, [ranks](Self& self) {
      placeResults(GetParam());
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

/// With whatever caches this machine has, some of these sizes try both ways, with and without memory that others can write to.
TEST(ProcessPlaces, ResultsAreRightWhileBothWaysToTheCacheAreTried) {
  ProcessRanks children(2, [](Self& self) {
    setenv("TUTTI_ALGO", "allreduce:twoshot", 1);
    ncclComm_t comm = joinAll(self);
    int round = 0;
    for (size_t count = size_t{300} << 10; count < size_t{8} << 20; count *= 2) {
      for (int i = 0; i < 10; ++i) {  // a trial of each way, and what follows
        sumAll(self, comm, {count + 5, 12, 100, false}, i % 3 == 2 ? 3U : 0U, round++);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
    EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  children.expectAllWell({}, 60);
}

/// Calls of sizes above and below the bound in turn, each with other buffers, of which the former are gone. Sizes leave a last slice of
/// whole pages: it is the one whose places a later call could take for its own.
void sumInTurn(ncclComm_t comm, int rank, int ranks, bool fromMemAlloc) {
  for (int round = 0; round < 6; ++round) {
    for (const size_t count : {(size_t{1} << 20) + 60'000, size_t{30'000}, size_t{2'000}, (size_t{1} << 19) + 13, size_t{3}}) {
      Memory in(count * sizeof(int), fromMemAlloc);
      Memory out(count * sizeof(int), fromMemAlloc);
      Memory others(count * sizeof(int), fromMemAlloc);
      auto* const from = reinterpret_cast<int*>(in.data());
      auto* const to = reinterpret_cast<int*>(out.data());
      for (size_t i = 0; i < count; ++i) from[i] = valueAt(i, rank, round);
      std::memset(others.data(), 0x5a, count * sizeof(int));
      ASSERT_EQ(ncclAllReduce(from, to, count, ncclInt, ncclSum, comm, nullptr), ok) << ncclGetLastError(comm);
      for (size_t i = 0; i < count; ++i) {
        const int expected = sumAt(i, ranks, round);
        if (to[i] != expected) FAIL() << to[i] << " instead of " << expected << ", element " << i << " of " << count;
      }
      // A call that places nothing must not write to where the one before has placed.
      const std::vector<int> before(to, to + count);
      constexpr size_t kMiddle = 190'000;  // less than 256 KiB for each of three ranks, from where on processes place anyway
      Memory memory(kMiddle * sizeof(int), fromMemAlloc);
      const std::span middle(reinterpret_cast<int*>(memory.data()), kMiddle);
      std::fill(middle.begin(), middle.end(), rank + 1);
      ASSERT_EQ(ncclAllReduce(middle.data(), middle.data(), kMiddle, ncclInt, ncclSum, comm, nullptr), ok);
      int small = rank + 1;
      ASSERT_EQ(ncclAllReduce(&small, &small, 1, ncclInt, ncclSum, comm, nullptr), ok);
      ASSERT_EQ(small, ranks * (ranks + 1) / 2);
      ASSERT_TRUE(std::all_of(middle.begin(), middle.end(), [small](int value) { return value == small; }));
      ASSERT_TRUE(std::equal(before.begin(), before.end(), to)) << "a later call wrote to this output";
      ASSERT_TRUE(std::all_of(others.data(), others.data() + count * sizeof(int), [](std::byte b) { return b == std::byte{0x5a}; }));
    }
  }
}

void placeAboveABound() {
  setenv("TUTTI_PAST_CACHE_BYTES", "1000000", 1);
  setenv("TUTTI_ALGO", "allreduce:twoshot", 1);
}

TEST(ProcessPlaces, CallsAboveAndBelowTheBoundTakeTurns) {
  for (const bool fromMemAlloc : {false, true}) {
    ProcessRanks children(3, [fromMemAlloc](Self& self) {
      placeAboveABound();
      ncclComm_t comm = joinAll(self);
      sumInTurn(comm, self.index(), self.count(), fromMemAlloc);
      EXPECT_EQ(ncclCommDestroy(comm), ok);
    });
    children.expectAllWell({}, 60);
  }
}

TEST(ProcessPlaces, CallsAboveAndBelowTheBoundTakeTurnsInThreads) {
  for (const bool fromMemAlloc : {false, true}) {
    ProcessRanks children(1, [fromMemAlloc](Self& self) {
      placeAboveABound();
      constexpr int kRanks = 3;
      const ncclUniqueId id = self.id();
      std::vector<std::thread> ranks;
      for (int rank = 0; rank < kRanks; ++rank) {
        ranks.emplace_back([&id, rank, fromMemAlloc] {
          ncclComm_t comm = nullptr;
          ASSERT_EQ(ncclCommInitRank(&comm, kRanks, id, rank), ok) << ncclGetLastError(nullptr);
          sumInTurn(comm, rank, kRanks, fromMemAlloc);
          EXPECT_EQ(ncclCommDestroy(comm), ok);
        });
      }
      for (std::thread& thread : ranks) thread.join();
    });
    children.expectAllWell({}, 60);
  }
}

/// A page at which the process that writes there stops, in the middle of writing results: it is in its own output.
struct Trap {
  static inline std::byte* page = nullptr;
  static inline bool cuts = false;  // its connections first

  static void onFault(int) {
    for (int fd = 3; cuts && fd < 200; ++fd) {
      struct stat info {};
      if (fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode)) (void)shutdown(fd, SHUT_RDWR);
    }
    (void)raise(SIGSTOP);
    (void)mprotect(page, pageBytes(), PROT_READ | PROT_WRITE);
  }
  static size_t pageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
  /// `output`: of rank 0, whose own chunk is the first.
  static void set(Memory& output, bool cutsConnections) {
    cuts = cutsConnections;
    page = output.data() + 16 * pageBytes();
    (void)std::signal(SIGSEGV, onFault);
    EXPECT_EQ(mprotect(page, pageBytes(), PROT_NONE), 0);
  }
};

/// Whether all of it is memory that other processes may have mapped.
bool isShared(const std::byte* data, size_t bytes) {
  const auto begin = reinterpret_cast<uint64_t>(data), end = begin + bytes;
  std::ifstream maps("/proc/self/maps");
  uint64_t shared = 0;
  for (std::string line; std::getline(maps, line);) {
    uint64_t from = 0, to = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &from, &to) != 2 || to <= begin || from >= end) continue;
    if (line.find("memfd") != std::string::npos) shared += std::min(to, end) - std::max(from, begin);
  }
  return shared == bytes;
}

constexpr size_t kCount = 1 << 20;

/// All-reduces until one does not succeed. Rank 0 stops in the middle of the fourth.
ncclResult_t sumUntilStopped(Self& self, ncclComm_t comm, Memory& in, Memory& out, bool cutsConnections = false) {
  ncclResult_t result = ok;
  for (int call = 0; result == ok && call < 1000; ++call) {
    if (call == 3 && self.index() == 0) Trap::set(out, cutsConnections);
    result = ncclAllReduce(in.data(), out.data(), kCount, ncclInt, ncclSum, comm, nullptr);
  }
  return result;
}

enum class Ends : uint8_t { ByDeadline, ByAbort, ByALostConnection };

/// One rank is stopped in the middle of writing results to the other's output, whose call fails. What that one does with its memory from
/// then on is its own business, whenever the stopped one goes on.
void playStop(Ends ends, const char* pastCacheBytes) {
  ProcessRanks children(2, [ends, pastCacheBytes](Self& self) {
    placeResults(pastCacheBytes);
    if (ends == Ends::ByDeadline) setenv("TUTTI_TIMEOUT_MS", "200", 1);
    ncclComm_t comm = joinAll(self);
    Memory in(kCount * sizeof(int), true);
    Memory out(kCount * sizeof(int), true);
    std::thread aborter;
    if (ends == Ends::ByAbort && self.index() == 1) {
      aborter = std::thread([comm] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        abortPromptly(comm);
      });
    }
    const ncclResult_t result = sumUntilStopped(self, comm, in, out, ends == Ends::ByALostConnection);
    EXPECT_NE(result, ok);
    if (self.index() == 0) {
      self.reach(4);
      EXPECT_EQ(ncclCommAbort(comm), ok);
      return;
    }
    if (aborter.joinable()) aborter.join();
    EXPECT_FALSE(isShared(out.data(), kCount * sizeof(int))) << "nothing was taken back";
    auto* const values = reinterpret_cast<int*>(out.data());
    std::fill(values, values + kCount, 0x1234567);
    self.reach(3);
    self.awaitStage(0, 4);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(std::all_of(values, values + kCount, [](int value) { return value == 0x1234567; })) << "written to after the call";
    EXPECT_EQ(ends == Ends::ByAbort ? ok : ncclCommAbort(comm), ok);
  });
  ASSERT_TRUE(children.awaitStage(1, 3)) << children.end(1).text;
  children.signal(0, SIGCONT);
  children.expectAllWell();
}

TEST_P(PastCaches, AStoppedWriterLeavesMemoryAloneAfterTheDeadline) { playStop(Ends::ByDeadline, GetParam()); }
TEST_P(PastCaches, AStoppedWriterLeavesMemoryAloneAfterAnAbort) { playStop(Ends::ByAbort, GetParam()); }
TEST_P(PastCaches, AStoppedWriterLeavesMemoryAloneThatWasCutOff) { playStop(Ends::ByALostConnection, GetParam()); }

/// The survivors of such a call go on with the memory that each has taken back, in calls that lend, copy and place.
TEST(ProcessPlaces, MemoryThatWasTakenBackServesLaterCalls) {
  for (const char* const copies : {"0", "1"}) {
    ProcessRanks children(3, [copies](Self& self) {
      placeEverything();
      setenv("TUTTI_CMA", copies, 1);
      setenv("TUTTI_TIMEOUT_MS", "200", 1);
      ncclComm_t comm = joinAll(self);
      Memory in(kCount * sizeof(int), true);
      Memory out(kCount * sizeof(int), true);
      EXPECT_EQ(sumUntilStopped(self, comm, in, out), ncclRemoteError);
      if (self.index() == 0) return;
      EXPECT_EQ(ncclCommAbort(comm), ok);
      ASSERT_FALSE(isShared(out.data(), kCount * sizeof(int)));
      ncclComm_t rest = nullptr;
      ASSERT_EQ(ncclCommInitRank(&rest, 2, self.id(1, 1), self.index() - 1), ok) << ncclGetLastError(nullptr);
      auto* const taken = reinterpret_cast<int*>(out.data());
      std::vector<int> all(2 * kCount);
      for (int round = 0; round < 3; ++round) {
        for (size_t i = 0; i < kCount; ++i) taken[i] = valueAt(i, self.index(), round);
        ASSERT_EQ(ncclAllGather(taken, all.data(), kCount, ncclInt, rest, nullptr), ok) << ncclGetLastError(rest);
        for (size_t i = 0; i < 2 * kCount; ++i) ASSERT_EQ(all[i], valueAt(i % kCount, 1 + static_cast<int>(i / kCount), round)) << i;
        std::fill(all.begin(), all.end(), -1);
        const ncclResult_t passed = self.index() == 1 ? ncclSend(taken, kCount, ncclInt, 1, rest, nullptr)
                                                      : ncclRecv(all.data(), kCount, ncclInt, 0, rest, nullptr);
        ASSERT_EQ(passed, ok) << ncclGetLastError(rest);
        for (size_t i = 0; self.index() == 2 && i < kCount; ++i) ASSERT_EQ(all[i], valueAt(i, 1, round)) << i;
        ASSERT_EQ(ncclAllReduce(taken, taken, kCount, ncclInt, ncclSum, rest, nullptr), ok) << ncclGetLastError(rest);
        for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(taken[i], valueAt(i, 1, round) + valueAt(i, 2, round)) << i;
      }
      EXPECT_EQ(ncclCommDestroy(rest), ok);
      self.reach(2);
    });
    for (const int survivor : {1, 2}) ASSERT_TRUE(children.awaitStage(survivor, 2)) << children.end(survivor).text;
    children.kill(0);
    children.expectAllWell({0});
  }
}

/// A call that has been queued behind the one that fails, on another communicator, with the output that is taken back in between.
TEST(ProcessPlaces, MemoryThatIsTakenBackServesCallsThatWereQueuedBefore) {
  ProcessRanks children(3, [](Self& self) {
    placeEverything();
    setenv("TUTTI_TIMEOUT_MS", "200", 1);
    ncclComm_t comm = joinAll(self);
    Memory in(kCount * sizeof(int), true);
    Memory out(kCount * sizeof(int), true);
    if (self.index() == 0) {
      (void)sumUntilStopped(self, comm, in, out);
      return;
    }
    ncclComm_t rest = nullptr;
    ASSERT_EQ(ncclCommInitRank(&rest, 2, self.id(1, 1), self.index() - 1), ok) << ncclGetLastError(nullptr);
    auto* const from = reinterpret_cast<int*>(in.data());
    auto* const to = reinterpret_cast<int*>(out.data());
    for (size_t i = 0; i < kCount; ++i) from[i] = valueAt(i, self.index(), 0);
    cudaStream_t stream = nullptr;
    ASSERT_EQ(tuttiStreamCreate(&stream), ok);
    for (int call = 0; call < 4; ++call) ASSERT_EQ(ncclAllReduce(from, to, kCount, ncclInt, ncclSum, comm, stream), ok);
    ASSERT_EQ(ncclAllReduce(from, to, kCount, ncclInt, ncclSum, rest, stream), ok) << ncclGetLastError(rest);
    EXPECT_EQ(tuttiStreamSynchronize(stream), ncclRemoteError);
    ncclResult_t state = ncclInternalError;
    EXPECT_EQ(ncclCommGetAsyncError(rest, &state), ok);
    EXPECT_EQ(state, ok);
    EXPECT_FALSE(isShared(out.data(), kCount * sizeof(int)));
    for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(to[i], valueAt(i, 1, 0) + valueAt(i, 2, 0)) << i;
    EXPECT_EQ(tuttiStreamDestroy(stream), ok);
    EXPECT_EQ(ncclCommDestroy(rest), ok);
    EXPECT_EQ(ncclCommAbort(comm), ok);
    self.reach(2);
  });
  for (const int survivor : {1, 2}) ASSERT_TRUE(children.awaitStage(survivor, 2)) << children.end(survivor).text;
  children.kill(0);
  children.expectAllWell({0});
}

}  // namespace
}  // namespace tutti::faults::process_places_test
