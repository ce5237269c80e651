// Copies that a reader and the process that lends to it make together (TUTTI_CMA=1): right whatever the size, and over when the call is,
// also where the lender has been stopped in the middle, or while it opened its connections, and goes on after the reader's call has failed.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <vector>

#include "faults/process_ranks.h"

namespace tutti::faults::process_copies_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
using Self = ProcessRanks::Self;

/// What `root` broadcasts in a round.
int valueAt(size_t i, int root, int round) { return static_cast<int>((i * 2654435761U) & 0xfffffff) + root * 77 + round; }

void fill(std::vector<int>& values, size_t count, int root, int round) {
  for (size_t i = 0; i < count; ++i) values[i] = valueAt(i, root, round);
}
bool isFilled(const std::vector<int>& values, size_t from, size_t count, int root, int round) {
  for (size_t i = 0; i < count; ++i)
    if (values[from + i] != valueAt(i, root, round)) return false;
  return true;
}

constexpr size_t kMost = (3 << 20) + 17;
const size_t kCounts[] = {131'071, 131'072, 131'073, 200'003, 262'145, (1 << 20) - 1, kMost};

TEST(ProcessCopies, BroadcastsAreRight) {
  for (const int ranks : {2, 3}) {
    ProcessRanks children(ranks, [ranks](Self& self) {
      setenv("TUTTI_CMA", "1", 1);
      ncclComm_t comm = joinAll(self);
      std::vector<int> in(kMost), out(kMost);
      int round = 0;
      for (const size_t count : kCounts) {
        for (int root = 0; root < ranks; ++root, ++round) {
          const bool inPlace = round % 2 == 1;
          if (self.index() == root) fill(in, count, root, round);
          std::fill(out.begin(), out.end(), -1);
          const void* const from = self.index() == root || inPlace ? in.data() : nullptr;
          std::vector<int>& to = inPlace ? in : out;
          ASSERT_EQ(ncclBroadcast(from, to.data(), count, ncclInt, root, comm, nullptr), ok) << ncclGetLastError(comm);
          EXPECT_TRUE(isFilled(to, 0, count, root, round)) << count << " from " << root;
          EXPECT_TRUE(inPlace || count == kMost || out[count] == -1);
          EXPECT_TRUE(self.index() != root || isFilled(in, 0, count, root, round));
        }
      }
      EXPECT_EQ(ncclCommDestroy(comm), ok);
    });
    children.expectAllWell({}, 60);
  }
}

TEST(ProcessCopies, MessagesAreRight) {
  constexpr int kRanks = 3;
  ProcessRanks children(kRanks, [](Self& self) {
    setenv("TUTTI_CMA", "1", 1);
    ncclComm_t comm = joinAll(self);
    for (const size_t count : kCounts) {
      const int next = (self.index() + 1) % kRanks, before = (self.index() + kRanks - 1) % kRanks;
      std::vector<int> in(count), out(count, -1);
      fill(in, count, self.index(), 1);
      EXPECT_EQ(ncclGroupStart(), ok);
      EXPECT_EQ(ncclSend(in.data(), count, ncclInt, next, comm, nullptr), ok);
      EXPECT_EQ(ncclRecv(out.data(), count, ncclInt, before, comm, nullptr), ok);
      EXPECT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(comm);
      EXPECT_TRUE(isFilled(out, 0, count, before, 1)) << count;
      std::vector<int> all(self.index() == 1 ? count * kRanks : 0, -1);
      EXPECT_EQ(ncclGather(in.data(), all.data(), count, ncclInt, 1, comm, nullptr), ok) << ncclGetLastError(comm);
      for (int rank = 0; self.index() == 1 && rank < kRanks; ++rank)
        EXPECT_TRUE(isFilled(all, count * static_cast<size_t>(rank), count, rank, 1)) << count << " from " << rank;
    }
    EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  children.expectAllWell({}, 60);
}

/// Broadcasts go on and on; the root is stopped at some moment of them. The reader's call ends by its deadline, or by an abort from another
/// thread; what it does with its memory from then on is its own business, whenever the root goes on.
void playStop(int afterUs, bool aborts) {
  constexpr size_t kCount = 4 << 20;
  ProcessRanks children(2, [aborts](Self& self) {
    setenv("TUTTI_CMA", "1", 1);
    if (!aborts) setenv("TUTTI_TIMEOUT_MS", "200", 1);
    ncclComm_t comm = joinAll(self);
    std::vector<int> values(kCount, 1);
    self.meet(1);
    std::thread aborter;
    if (aborts && self.index() == 1) {
      aborter = std::thread([&self, comm] {
        self.awaitAllowed(2);
        abortPromptly(comm);
      });
    }
    ncclResult_t result = ok;
    while (result == ok) result = ncclBroadcast(values.data(), values.data(), kCount, ncclInt, 0, comm, nullptr);
    EXPECT_TRUE(result == ncclRemoteError || (aborts && result == ncclInvalidArgument)) << ncclGetErrorString(result);
    if (self.index() == 0) {
      self.reach(4);
      EXPECT_EQ(ncclCommAbort(comm), ok);
      return;
    }
    if (aborter.joinable()) aborter.join();
    std::fill(values.begin(), values.end(), 0x1234567);
    self.reach(3);
    self.awaitStage(0, 4);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](int value) { return value == 0x1234567; })) << "written to after the call";
    EXPECT_EQ(aborts ? ok : ncclCommAbort(comm), ok);
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  std::this_thread::sleep_for(std::chrono::microseconds(afterUs));
  children.signal(0, SIGSTOP);
  children.allow(2);
  ASSERT_TRUE(children.awaitStage(1, 3)) << children.end(1).text;
  children.signal(0, SIGCONT);
  children.expectAllWell();
}

/// Within the first millisecond ranks open their connections, under a lock that they share.
constexpr int kMomentsUs[] = {0, 150, 300, 450, 600, 800, 1'000, 1'400, 20'000, 20'137, 20'411};

TEST(ProcessCopies, AStoppedLenderLeavesMemoryAloneAfterTheDeadline) {
  for (const int after : kMomentsUs) playStop(after, false);
}

TEST(ProcessCopies, AStoppedLenderLeavesMemoryAloneAfterAnAbort) {
  for (const int after : kMomentsUs) playStop(after, true);
}

}  // namespace
}  // namespace tutti::faults::process_copies_test
