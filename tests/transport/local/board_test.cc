#include "transport/local/board.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace tutti::transport::local {
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
  EXPECT_TRUE(board.hasNothingBut(other));  // long past
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

TEST(Board, AReaderFindsTheRightCallOrNone) {
  Board board;
  std::atomic<uint64_t> latest{0};
  constexpr uint64_t kCalls = 200000;
  std::thread writer([&] {
    for (uint64_t i = 1; i <= kCalls; ++i) {
      board.post(callOf(i));
      latest.store(i, std::memory_order_relaxed);
    }
  });

  for (uint64_t now = 0; now < kCalls; now = latest.load(std::memory_order_relaxed)) {
    for (const uint64_t back : {0U, 1U, 63U, 64U}) {
      if (back >= now) continue;
      const auto call = board.find(now - back);
      if (!call) continue;
      ASSERT_EQ(*call, callOf(now - back));
    }
  }
  writer.join();
  EXPECT_EQ(board.find(kCalls), callOf(kCalls));
}

}  // namespace
}  // namespace tutti::transport::local
