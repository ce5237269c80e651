// How the two ranks of a direction come to a captured message together, or go by kernels from then on. That buffers are mapped then is seen
// in conformance/gpu/lent_messages.
#include "transport/device/message_loans.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include "../../driver/cuda/play.h"
#include "transport/device/surroundings.h"

namespace tutti::transport::device::message_loans_test {
namespace {

using Met = LoanTurn::Met;
using Side = LoanTurn::Side;

struct Turns : testing::Test {
  std::atomic<uint64_t> word{0};
  const LoanTurn turn{word};
};

TEST_F(Turns, WhoComesFirstWaitsForTheOther) {
  for (uint64_t number = 0; number < 5; ++number) {
    const Side first = number % 2 == 0 ? Side::Sender : Side::Receiver;
    const Side second = number % 2 == 0 ? Side::Receiver : Side::Sender;
    EXPECT_EQ(turn.come(first, number), Met::NotYet);
    EXPECT_EQ(turn.come(first, number), Met::NotYet) << "as often as it asks";
    EXPECT_EQ(turn.come(second, number), Met::Together);
    EXPECT_EQ(turn.come(first, number), Met::Together);
    EXPECT_EQ(turn.come(second, number), Met::Together);
  }
}

TEST_F(Turns, WhoHasWithdrawnIsNotWaitedForAgain) {
  ASSERT_EQ(turn.come(Side::Sender, 0), Met::NotYet);
  ASSERT_EQ(turn.come(Side::Receiver, 0), Met::Together);
  ASSERT_EQ(turn.come(Side::Receiver, 1), Met::NotYet);
  EXPECT_EQ(turn.withdraw(1), Met::Never);
  EXPECT_EQ(turn.come(Side::Sender, 1), Met::Never);
  EXPECT_EQ(turn.come(Side::Sender, 2), Met::Never);
  EXPECT_EQ(turn.come(Side::Receiver, 7), Met::Never);
}

TEST_F(Turns, WhoWithdrawsTooLateIsTogether) {
  ASSERT_EQ(turn.come(Side::Sender, 0), Met::NotYet);
  ASSERT_EQ(turn.come(Side::Receiver, 0), Met::Together);
  EXPECT_EQ(turn.withdraw(0), Met::Together);
  EXPECT_EQ(turn.come(Side::Receiver, 0), Met::Together);
}

/// The other side may come to the next message, and withdraw there, before this one has looked again.
TEST_F(Turns, WhoLooksLateSeesWhereTheyWereTogether) {
  ASSERT_EQ(turn.come(Side::Sender, 0), Met::NotYet);
  ASSERT_EQ(turn.come(Side::Receiver, 0), Met::Together);
  ASSERT_EQ(turn.come(Side::Receiver, 1), Met::NotYet);
  EXPECT_EQ(turn.come(Side::Sender, 0), Met::Together);
  EXPECT_EQ(turn.come(Side::Receiver, 1), Met::NotYet);
  EXPECT_EQ(turn.withdraw(1), Met::Never);
  EXPECT_EQ(turn.come(Side::Sender, 0), Met::Together);
  EXPECT_EQ(turn.withdraw(0), Met::Together);
  EXPECT_EQ(turn.come(Side::Sender, 1), Met::Never);
}

/// Counts of messages wrap.
TEST_F(Turns, GoOnBehindMoreMessagesThanAreCounted) {
  const uint64_t most = uint64_t{1} << 31;
  for (uint64_t number : {most - 2, most - 1, most, most + 1}) {
    if (number == most - 2) word = (most - 2) << 31 | (most - 2);
    ASSERT_EQ(turn.come(Side::Sender, number), Met::NotYet) << number;
    ASSERT_EQ(turn.come(Side::Receiver, number), Met::Together) << number;
    ASSERT_EQ(turn.come(Side::Sender, number), Met::Together) << number;
  }
  ASSERT_EQ(turn.come(Side::Receiver, most + 2), Met::NotYet);
  EXPECT_EQ(turn.withdraw(most + 2), Met::Never);
  EXPECT_EQ(turn.come(Side::Sender, most + 1), Met::Together);
  EXPECT_EQ(turn.come(Side::Sender, most + 2), Met::Never);
}

/// Whenever each of them loses patience, both come to the same end of every message.
TEST_F(Turns, BothSeeTheSame) {
  constexpr int kRounds = 400;
  constexpr uint64_t kMessages = 8;
  std::mt19937_64 random(20261130);
  int withdrawn = 0;
  for (int round = 0; round < kRounds; ++round) {
    word = 0;
    std::array<uint64_t, 2> together{};
    std::array<uint64_t, 2> patience{random() % 300, random() % 300};  // looks
    const auto play = [&](size_t me) {
      const Side side = me == 0 ? Side::Sender : Side::Receiver;
      for (uint64_t number = 0; number < kMessages; ++number) {
        Met met = turn.come(side, number);
        for (uint64_t looks = 0; met == Met::NotYet; ++looks) met = looks < patience[me] ? turn.come(side, number) : turn.withdraw(number);
        if (met == Met::Never) return;
        ++together[me];
      }
    };
    std::thread other([&] { play(1); });
    play(0);
    other.join();
    ASSERT_EQ(together[0], together[1]) << "round " << round;
    withdrawn += together[0] < kMessages ? 1 : 0;
  }
  EXPECT_GT(withdrawn, 0);
}

/// Two ranks and a page of theirs; both say that they have nothing there, so nothing is mapped.
class Loans : public testing::Test {
 protected:
  using Clock = MessageLoans::Clock;
  static constexpr int32_t kRanks = 2;

  void SetUp() override {
    auto opened = memory::Gpu::open(*world.driver, 0);
    ASSERT_TRUE(opened) << opened.error().text();
    gpu = std::move(*opened);
    const uint64_t bytes = (Page::bytesFor(kRanks) + 4095) / 4096 * 4096;
    room.reset(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)));
    std::memset(room.get(), 0, bytes);
    const Page page(room.get(), kRanks);
    around.gpu = gpu.get();
    for (int32_t r = 0; r < kRanks; ++r) side[r].emplace(around, page, ProcessKey{}, Rank(r));
  }
  UserWindows::Ref begin(int32_t rank, uint64_t number) {
    return side[rank]->begin({Rank(0), Rank(1), number}, 0, Bytes(100), Published::Readers::Any);
  }
  Poll look(int32_t rank) { return side[rank]->advance(true, now); }

  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  driver::cuda::play::World world;
  std::unique_ptr<memory::Gpu> gpu;
  std::unique_ptr<std::byte, Free> room;
  Surroundings around;
  std::optional<MessageLoans> side[kRanks];
  Clock::time_point now = Clock::now();
};

TEST_F(Loans, AreSettledByBothOrNone) {
  const auto mine = begin(0, 0);
  EXPECT_EQ(look(0), Poll::Pending);
  EXPECT_EQ(side[0]->missing(), Rank(1));
  const auto theirs = begin(1, 0);
  for (int i = 0; i < 3; ++i) (void)look(1), (void)look(0);
  EXPECT_TRUE(mine->isSettled && mine->isUsable) << mine->reason;
  EXPECT_TRUE(theirs->isSettled && theirs->isUsable) << theirs->reason;
}

TEST_F(Loans, WhoWaitsTooLongWithdrawsOnce) {
  const auto first = begin(0, 0);
  EXPECT_EQ(look(0), Poll::Pending);
  now += MessageLoans::kMostPatience;
  EXPECT_EQ(look(0), Poll::Ready);
  EXPECT_TRUE(first->isSettled);
  EXPECT_FALSE(first->isUsable);
  const auto second = begin(0, 1);
  EXPECT_EQ(look(0), Poll::Ready) << "without another wait";
  EXPECT_FALSE(second->isUsable);
  const auto theirs = begin(1, 0);
  EXPECT_EQ(look(1), Poll::Ready);
  EXPECT_FALSE(theirs->isUsable);
}

/// One side is done with the first message and gives up the second while the other has not looked again: what they had together stays.
TEST_F(Loans, WhatWasTogetherStaysSo) {
  const auto slow = begin(0, 0);
  const auto first = begin(1, 0);
  const auto second = begin(1, 1);
  for (const int32_t rank : {0, 1, 0, 1}) (void)look(rank);
  ASSERT_TRUE(first->isUsable) << first->reason;
  ASSERT_FALSE(slow->isSettled) << "it has not seen that the other one has mapped, too";
  now += MessageLoans::kMostPatience;
  EXPECT_EQ(look(1), Poll::Ready);
  EXPECT_FALSE(second->isUsable);
  EXPECT_EQ(look(0), Poll::Ready);
  EXPECT_TRUE(slow->isUsable) << slow->reason;
}

TEST_F(Loans, AreNoneOfOtherMessages) {
  const auto mine = begin(0, 3);
  const auto theirs = begin(1, 4);
  for (int i = 0; i < 3; ++i) (void)look(1), (void)look(0);
  EXPECT_TRUE(mine->isSettled && theirs->isSettled);
  EXPECT_FALSE(mine->isUsable || theirs->isUsable);
}

}  // namespace
}  // namespace tutti::transport::device::message_loans_test
