// What is under way between hosts when a communicator ends: finalized, it arrives; aborted, it touches no memory any more.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "faults/hosts.h"

namespace tutti::faults::hosts_transit_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
constexpr int kSender = 0;
constexpr int kReceiver = 1;
using Self = ProcessRanks::Self;

std::byte valueAt(size_t i) { return static_cast<std::byte>(i * 7 + (i >> 11)); }

std::vector<std::byte> message(size_t bytes) {
  std::vector<std::byte> all(bytes);
  for (size_t i = 0; i < bytes; ++i) all[i] = valueAt(i);
  return all;
}

ncclResult_t awaitEnd(ncclComm_t comm, ncclResult_t first) {
  const Stopwatch watch;
  ncclResult_t state = first;
  while (state == ncclInProgress && watch.seconds() < 20) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (const ncclResult_t asked = ncclCommGetAsyncError(comm, &state); asked != ok) return asked;
  }
  return state;
}

ncclComm_t join(Self& self, bool isBlocking) {
  playHost(self.index());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = isBlocking ? 1 : 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t begun = ncclCommInitRankConfig(&comm, self.count(), self.id(), self.index(), &config);
  EXPECT_EQ(awaitEnd(comm, begun), ok) << lastError();
  return comm;
}

class HostsTransit : public testing::TestWithParam<bool> {};

/// The receiver comes late, and both finalize at once; while they do, a second thread asks how it goes.
TEST_P(HostsTransit, AFinalizedRankDeliversALargeMessage) {
  constexpr size_t kBytes = size_t{48} << 20;
  ProcessRanks children(2, [isBlocking = GetParam()](Self& self) {
    ncclComm_t comm = join(self, isBlocking);
    const bool sends = self.index() == kSender;
    std::vector<std::byte> data = sends ? message(kBytes) : std::vector<std::byte>(kBytes);
    if (!sends) std::this_thread::sleep_for(std::chrono::milliseconds(150));
    const ncclResult_t called = sends ? ncclSend(data.data(), kBytes, ncclChar, kReceiver, comm, nullptr)
                                      : ncclRecv(data.data(), kBytes, ncclChar, kSender, comm, nullptr);
    EXPECT_EQ(awaitEnd(comm, called), ok) << lastError();
    const ncclResult_t begun = ncclCommFinalize(comm);
    EXPECT_TRUE(begun == ok || (begun == ncclInProgress && !isBlocking)) << begun << ' ' << lastError();
    std::atomic<bool> isOver{false};
    std::thread other([&] {
      do {
        ncclResult_t state = ok;
        EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ok);
        EXPECT_TRUE(state == ok || state == ncclInProgress) << state;
      } while (!isOver && !testing::Test::HasFailure());
    });
    EXPECT_EQ(awaitEnd(comm, begun), ok) << lastError();
    isOver = true;
    other.join();
    EXPECT_EQ(ncclCommDestroy(comm), ok) << lastError();
    if (!sends) {
      EXPECT_TRUE(data == message(kBytes));
    }
  });
  children.expectAllWell({}, 60);
}

/// The receiver has offered the memory of all its messages, a part of which has come, and gives up. Then the rest is sent.
TEST_P(HostsTransit, NothingTouchesTheMemoryOfReceivesThatWereAborted) {
  constexpr size_t kBytes = size_t{3} << 20;
  constexpr int kMessages = 8;
  ProcessRanks children(2, [isBlocking = GetParam()](Self& self) {
    ncclComm_t comm = join(self, isBlocking);
    const std::vector<std::byte> sent = message(kBytes);
    if (self.index() == kSender) {
      EXPECT_EQ(awaitEnd(comm, ncclSend(sent.data(), kBytes, ncclChar, kReceiver, comm, nullptr)), ok) << lastError();
      self.meet(1);
      for (int i = 1; i < kMessages; ++i)  // nobody wants them
        (void)awaitEnd(comm, ncclSend(sent.data(), kBytes, ncclChar, kReceiver, comm, nullptr));
      abortPromptly(comm);
      self.meet(2);
      return;
    }
    std::vector<std::byte> room(kBytes * kMessages, std::byte{0xee});
    std::thread waiter([&] {
      EXPECT_EQ(ncclGroupStart(), ok);
      for (int i = 0; i < kMessages; ++i)
        EXPECT_EQ(ncclRecv(room.data() + static_cast<size_t>(i) * kBytes, kBytes, ncclChar, kSender, comm, nullptr), ok);
      const ncclResult_t result = ncclGroupEnd();
      EXPECT_TRUE(result == ncclRemoteError || result == ncclInvalidUsage || result == ncclInProgress) << result << ' ' << lastError();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    abortPromptly(comm);
    waiter.join();
    const std::vector<std::byte> left = room;
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), left.begin())) << "the first had come";
    EXPECT_TRUE(std::all_of(left.begin() + kBytes, left.end(), [](std::byte b) { return b == std::byte{0xee}; }));
    self.meet(1);
    self.meet(2);
    EXPECT_TRUE(room == left);
  });
  children.expectAllWell({}, 60);
}

INSTANTIATE_TEST_SUITE_P(Blocking, HostsTransit, testing::Bool());

}  // namespace
}  // namespace tutti::faults::hosts_transit_test
