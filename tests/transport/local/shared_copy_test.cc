#include "transport/local/shared_copy.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "memory/mapping.h"
#include "transport/local/neighbour.h"

namespace tutti::transport::local::shared_copy_test {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kBytes = (3 << 20) + 4321;

std::byte valueAt(uint64_t i) { return static_cast<std::byte>(i * 7 + i / 4096); }

/// What the two processes share.
struct Common {
  CopyDesk desk;
  std::atomic<uint64_t> helped;  ///< parts that the lender has taken
  std::atomic<bool> isThrough;   ///< the lender has left the desk, until this is taken back
  std::byte value[kBytes];       ///< lent: both see it, so that no test depends on who may read whose memory
};

/// This process reads; a child lends, and does at the desk what a test wants it to: `atDesk` is called with a part taken and not yet
/// written.
class Pair : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(page.has_value());
    if (!mayWrite()) GTEST_SKIP() << "process_vm_writev is forbidden here";
    common = new (page->data()) Common{};
    for (uint64_t i = 0; i < kBytes; ++i) common->value[i] = valueAt(i);
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  }
  void TearDown() override {
    if (child <= 0) return;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  /// `rounds`: after so many parts the lender is through.
  void lend(uint64_t rounds, std::function<bool()> atDesk) {
    const pid_t parent = getpid();
    child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      ProcessEntry own{};
      own.pid = parent;
      const Neighbour reader(own, false, std::move(atDesk));
      for (;;) {
        while (common->helped < rounds)
          if (const uint64_t number = wantsHelp(common->desk);
              number != 0 && helpWith(common->desk, reader, {number, common->value, kBytes}))
            ++common->helped;
        common->isThrough = true;
        while (common->isThrough) std::this_thread::sleep_for(1ms);
      }
    }
    entry.pid = child;
    lender.emplace(entry, false);
    copy.emplace(&common->desk);
  }
  bool mayWrite() {
    iovec here{&probe, 1}, there{&probe, 1};
    return process_vm_writev(getpid(), &here, 1, &there, 1, 0) == 1;
  }
  Poll advance(uint64_t number, bool isSeen = true) {
    return copy->advance(*lender, number, output.data(), reinterpret_cast<uint64_t>(common->value), isSeen ? common->value : nullptr,
                         kBytes, status);
  }
  Poll finish(uint64_t number, bool isSeen = true) {
    for (const auto until = std::chrono::steady_clock::now() + 20s; std::chrono::steady_clock::now() < until;)
      if (const Poll poll = advance(number, isSeen); poll != Poll::Pending) return poll;
    return Poll::Pending;
  }
  /// Copies again and again until the lender has taken a part of a copy that is not over then: that one's number.
  uint64_t copyUntilItHelps() {
    uint64_t number = 1;
    for (const auto until = std::chrono::steady_clock::now() + 20s; std::chrono::steady_clock::now() < until; ++number) {
      const Poll poll = advance(number);
      if (poll == Poll::Pending) return number;
      if (poll == Poll::Failed) break;
      kill(child, SIGCONT);
      if (common->isThrough) {  // its part was taken back before anybody saw it at the desk, which a busy machine does to it: once more
        common->helped = 0;
        common->isThrough = false;
      }
      std::fill(output.begin(), output.end(), std::byte{0});
    }
    ADD_FAILURE() << number << " copies, of which the lender has taken " << common->helped << " parts: " << status.text();
    return 0;
  }
  bool waitFor(const std::function<bool()>& condition) {
    for (const auto until = std::chrono::steady_clock::now() + 10s; std::chrono::steady_clock::now() < until;
         std::this_thread::sleep_for(1ms))
      if (condition()) return true;
    return false;
  }
  bool isRight() const { return std::memcmp(output.data(), common->value, kBytes) == 0; }
  /// Whether the lender, which goes on now, leaves memory alone that is the reader's own again.
  bool leavesAlone() {
    std::fill(output.begin(), output.end(), std::byte{0xee});
    kill(child, SIGCONT);
    if (!waitFor([&] { return common->isThrough.load(); })) return false;
    return std::all_of(output.begin(), output.end(), [](std::byte b) { return b == std::byte{0xee}; });
  }

  Result<memory::Mapping> page = memory::Mapping::shareable(Bytes(sizeof(Common)));
  Common* common = nullptr;
  pid_t child = 0;
  char probe = 'x';
  ProcessEntry entry{};
  std::optional<Neighbour> lender;
  std::optional<SharedCopy> copy;
  std::vector<std::byte> output = std::vector<std::byte>(kBytes);
  Status status;
};

bool stops() {
  raise(SIGSTOP);
  return true;
}

TEST_F(Pair, BothCopyAndEverythingIsThere) {
  lend(1'000'000, [] { return true; });
  uint64_t number = 0;
  do {
    std::memset(output.data(), 0, kBytes);  // quick under sanitizers, as is isRight(): there may be many copies until one is helped with
    ASSERT_EQ(finish(++number), Poll::Ready) << status.text();
    ASSERT_TRUE(isRight()) << "copy " << number;
  } while ((number < 200 || common->helped == 0) && number < 20'000);
  EXPECT_GT(common->helped, 0U);
}

TEST_F(Pair, AStoppedLenderLosesItsPart) {
  lend(1, stops);
  const uint64_t number = copyUntilItHelps();
  ASSERT_NE(number, 0U);
  ASSERT_EQ(finish(number), Poll::Ready) << status.text();
  EXPECT_TRUE(isRight());
  EXPECT_NE(common->desk.helper, 0) << "it still stands there";
  EXPECT_TRUE(leavesAlone());
  EXPECT_EQ(common->desk.written, 0U);
}

TEST_F(Pair, ADeskWithSomebodyAtItGetsNoNewCopy) {
  lend(1, stops);
  const uint64_t number = copyUntilItHelps();
  ASSERT_NE(number, 0U);
  ASSERT_EQ(finish(number), Poll::Ready) << status.text();
  std::fill(output.begin(), output.end(), std::byte{0});
  EXPECT_EQ(advance(number + 1), Poll::Ready) << "alone, at once";
  EXPECT_TRUE(isRight());
  EXPECT_EQ(wantsHelp(common->desk), 0U);
  EXPECT_TRUE(leavesAlone());
  std::fill(output.begin(), output.end(), std::byte{0});
  EXPECT_EQ(finish(number + 2), Poll::Ready);
  EXPECT_TRUE(isRight());
}

TEST_F(Pair, StopLeavesTheMemoryToItsOwner) {
  lend(1, stops);
  ASSERT_NE(copyUntilItHelps(), 0U);
  const auto began = std::chrono::steady_clock::now();
  copy->stop();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 1s);
  EXPECT_TRUE(leavesAlone());
}

TEST_F(Pair, StopWaitsForALenderThatRuns) {
  lend(1, [] {
    for (const auto until = std::chrono::steady_clock::now() + 100ms; std::chrono::steady_clock::now() < until;) continue;
    return true;
  });
  ASSERT_NE(copyUntilItHelps(), 0U);
  copy->stop();
  EXPECT_EQ(common->desk.helper, 0);
  EXPECT_TRUE(leavesAlone());
}

TEST_F(Pair, ALenderThatSleepsElsewhereLosesItsPart) {
  lend(1, [] {
    std::this_thread::sleep_for(300ms);
    return true;
  });
  const uint64_t number = copyUntilItHelps();
  ASSERT_NE(number, 0U);
  const auto began = std::chrono::steady_clock::now();
  ASSERT_EQ(finish(number), Poll::Ready) << status.text();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 250ms);
  EXPECT_TRUE(isRight());
  EXPECT_TRUE(leavesAlone());
}

TEST_F(Pair, APartThatTheLenderCannotWriteIsCopiedByTheReader) {
  lend(1, [] { return false; });
  for (uint64_t number = 1; !common->isThrough && number < 100'000; ++number) {
    std::fill(output.begin(), output.end(), std::byte{0});
    ASSERT_EQ(finish(number), Poll::Ready) << status.text();
    ASSERT_TRUE(isRight()) << "copy " << number;
  }
  EXPECT_TRUE(common->isThrough) << "it has refused none";
}

TEST_F(Pair, AKilledLenderFailsACopyThatOnlyItCanSee) {
  lend(1, [] {
    kill(getpid(), SIGKILL);
    return true;
  });
  for (uint64_t number = 1; number < 100'000 && status.ok(); ++number) (void)finish(number, false);
  EXPECT_EQ(status.code(), Code::RemoteError);
  std::fill(output.begin(), output.end(), std::byte{0xee});
  EXPECT_EQ(wantsHelp(common->desk), 0U);
}

}  // namespace
}  // namespace tutti::transport::local::shared_copy_test
