// How the two ranks of a direction come to a captured message together, or go by kernels from then on. That buffers are mapped then is seen
// in conformance/gpu/lent_messages.
#include "transport/device/message_loans.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <random>
#include <thread>

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
  EXPECT_EQ(turn.withdraw(Side::Receiver, 1), Met::Never);
  EXPECT_EQ(turn.come(Side::Sender, 1), Met::Never);
  EXPECT_EQ(turn.come(Side::Sender, 2), Met::Never);
  EXPECT_EQ(turn.come(Side::Receiver, 7), Met::Never);
}

TEST_F(Turns, WhoWithdrawsTooLateIsTogether) {
  ASSERT_EQ(turn.come(Side::Sender, 0), Met::NotYet);
  ASSERT_EQ(turn.come(Side::Receiver, 0), Met::Together);
  EXPECT_EQ(turn.withdraw(Side::Sender, 0), Met::Together);
  EXPECT_EQ(turn.come(Side::Receiver, 0), Met::Together);
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
        for (uint64_t looks = 0; met == Met::NotYet; ++looks)
          met = looks < patience[me] ? turn.come(side, number) : turn.withdraw(side, number);
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

}  // namespace
}  // namespace tutti::transport::device::message_loans_test
