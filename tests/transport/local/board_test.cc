#include "transport/local/board.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace tutti::transport::local::board_test {
namespace {

/// A call whose every field depends on its number.
Call callOf(uint64_t sequence) {
  const uint64_t noise = sequence * 0x9e3779b97f4a7c15ull;
  Call call;
  call.collective = static_cast<Collective>(noise % 9);
  call.type = static_cast<DataType>(noise / 9 % 12);
  call.opCode = static_cast<uint8_t>(noise / 108 % 6);
  call.root = static_cast<int32_t>(noise >> 33);
  call.count = noise;
  call.sequence = sequence;
  return call;
}

TEST(Board, IsEmptyAtFirst) {
  const Board board;
  for (const uint64_t sequence : {0U, 1U, 63U, 64U}) EXPECT_FALSE(board.find(sequence));
}

TEST(Board, ShowsTheCallsThatWerePosted) {
  Board board;
  EXPECT_EQ(board.begun(), 0U);
  board.post(callOf(0));
  board.post(callOf(1));
  EXPECT_EQ(board.find(0), callOf(0));
  EXPECT_EQ(board.find(1), callOf(1));
  EXPECT_FALSE(board.find(2));
  EXPECT_EQ(board.begun(), 2U);
}

TEST(Board, TellsAnotherCallFromTheSameOrNone) {
  Board board;
  EXPECT_TRUE(board.hasNothingBut(callOf(5)));
  board.post(callOf(5));
  EXPECT_TRUE(board.hasNothingBut(callOf(5)));
  EXPECT_TRUE(board.hasNothingBut(callOf(5 + 64)));  // the rank has not come to it
  const Call same = callOf(5);
  Call other = same;
  other.count ^= uint64_t{1} << 63;
  EXPECT_FALSE(board.hasNothingBut(other));
  other = same;
  other.root ^= 1 << 30;
  EXPECT_FALSE(board.hasNothingBut(other));
  other = same;
  other.opCode ^= 1;
  EXPECT_FALSE(board.hasNothingBut(other));
  board.post(callOf(5 + 64));
  EXPECT_FALSE(board.hasNothingBut(other));  // still there
}

TEST(Board, ARunIsOneEntryHoweverLong) {
  Board board;
  constexpr uint64_t kCalls = 1000;
  Call call = callOf(7);
  for (call.sequence = 7; call.sequence < 7 + kCalls; ++call.sequence) board.post(call);
  EXPECT_EQ(board.begun(), 7 + kCalls);
  for (uint64_t sequence = 0; sequence < 2 * kCalls; ++sequence) {
    call.sequence = sequence;
    const bool isIn = sequence >= 7 && sequence < 7 + kCalls;
    EXPECT_EQ(board.find(sequence).has_value(), isIn) << sequence;
    if (isIn) {
      EXPECT_EQ(*board.find(sequence), call);
    }
  }
  // 63 others leave the run where it is, 64 do not.
  for (uint64_t i = 0; i < 63; ++i) board.post(callOf(7 + kCalls + i));
  EXPECT_TRUE(board.find(7));
  board.post(callOf(7 + kCalls + 63));
  EXPECT_FALSE(board.find(7));
}

TEST(Board, ARunEndsWhereACallIsLeftOut) {
  Board board;
  Call call = callOf(3);
  board.post(call);
  call.sequence = 5;
  board.post(call);
  EXPECT_TRUE(board.find(3));
  EXPECT_FALSE(board.find(4));
  EXPECT_TRUE(board.find(5));
}

TEST(Board, TellsARunOfLikeCallsFromOthers) {
  Board board;
  Call call = callOf(0);
  Call other = call;
  other.count ^= 1;
  board.post(other);
  for (call.sequence = 1; call.sequence < 10; ++call.sequence) board.post(call);
  call.sequence = 9;
  EXPECT_TRUE(board.hasNothingBut(call, 1));
  EXPECT_TRUE(board.hasNothingBut(call, 9));
  EXPECT_FALSE(board.hasNothingBut(call, 0)) << "the first was another one";
  call.sequence = 12;
  EXPECT_TRUE(board.hasNothingBut(call, 5)) << "those that it has come to agree";
  other.sequence = 12;
  EXPECT_FALSE(board.hasNothingBut(other, 9));
  EXPECT_TRUE(board.hasNothingBut(other, 10)) << "it has not come to any";
}

TEST(Board, WhoGoesOnWithARunWritesItsEndAlone) {
  Board board;
  EXPECT_EQ(board.endOfLatest(), nullptr);
  Call call = callOf(4);
  board.post(call);
  std::atomic<uint64_t>* const end = board.endOfLatest();
  ASSERT_EQ(end->load(), 5U);
  end->store(6);
  call.sequence = 5;
  EXPECT_EQ(board.find(5), call);
  board.post(callOf(6));
  EXPECT_EQ(end->load(), 6U) << "another run has begun: the old one stays as it was";
  EXPECT_NE(board.endOfLatest(), end);
}

TEST(Board, ForgetsWhatIsLongPastAndNeverMixesItUp) {
  Board board;
  for (uint64_t i = 0; i < 1000; ++i) board.post(callOf(i));
  EXPECT_EQ(board.find(999), callOf(999));
  EXPECT_EQ(board.begun(), 1000U);
  EXPECT_FALSE(board.find(0));
  EXPECT_FALSE(board.find(1000));
  for (uint64_t i = 0; i < 1000; ++i) {
    const auto found = board.find(i);
    EXPECT_EQ(found.value_or(callOf(i)), callOf(i));
  }
}

/// As when a launch fails whose calls were posted, and others are made instead.
TEST(Board, APostTakesBackWhatWasPostedFromItsNumberOn) {
  Board board;
  for (uint64_t i = 3; i < 8; ++i) board.post(callOf(i));
  Call other = callOf(5);
  ++other.count;
  board.post(other);
  EXPECT_EQ(board.find(4), callOf(4));
  EXPECT_EQ(board.find(5), other);
  for (const uint64_t sequence : {6U, 7U}) {
    EXPECT_FALSE(board.find(sequence)) << sequence;
    Call own = callOf(sequence);
    ++own.count;
    EXPECT_TRUE(board.hasNothingBut(own)) << sequence;
  }
}

/// One of runs of 1, 2 … 5 calls.
Call callInRuns(uint64_t sequence) {
  constexpr uint64_t kRunOf[15] = {0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4};
  Call call = callOf(sequence / 15 * 5 + kRunOf[sequence % 15]);
  call.sequence = sequence;
  return call;
}

void readWhileItIsWritten(Call (*make)(uint64_t)) {
  Board board;
  std::atomic<uint64_t> latest{0};
  constexpr uint64_t kCalls = 200000;
  std::thread writer([&] {
    for (uint64_t i = 1; i <= kCalls; ++i) {
      board.post(make(i));
      latest.store(i, std::memory_order_relaxed);
    }
  });

  for (uint64_t now = 0; now < kCalls; now = latest.load(std::memory_order_relaxed)) {
    for (const uint64_t back : {0U, 1U, 7U, 63U, 64U}) {
      if (back >= now) continue;
      Call other = make(now - back);
      ++other.count;
      const bool isOther = board.hasNothingBut(other);  // what it says must still be so for who looks later
      const auto call = board.find(now - back);
      if (!call) continue;
      ASSERT_EQ(*call, make(now - back));
      ASSERT_FALSE(isOther && back > 0) << now << ' ' << back;
    }
  }
  writer.join();
  EXPECT_EQ(board.find(kCalls), make(kCalls));
}

TEST(Board, AReaderFindsTheRightCallOrNone) {
  readWhileItIsWritten(callOf);
  readWhileItIsWritten(callInRuns);
}

}  // namespace
}  // namespace tutti::transport::local::board_test
