#include "transport/local/board.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace tutti::transport::local {
namespace {

TEST(Board, IsEmptyAtFirst) {
  const Board board;
  for (const uint64_t sequence : {0U, 1U, 63U, 64U}) EXPECT_FALSE(board.find(sequence));
}

TEST(Board, ShowsTheCallsThatWerePosted) {
  Board board;
  board.post(0, 100);
  board.post(1, 0);
  EXPECT_EQ(board.find(0), 100U);
  EXPECT_EQ(board.find(1), 0U);
  EXPECT_FALSE(board.find(2));
}

TEST(Board, ForgetsWhatIsLongPastAndNeverMixesItUp) {
  Board board;
  for (uint64_t i = 0; i < 1000; ++i) board.post(i, i * 3);
  EXPECT_EQ(board.find(999), 2997U);
  EXPECT_FALSE(board.find(0));
  EXPECT_FALSE(board.find(1000));
  for (uint64_t i = 0; i < 1000; ++i) {
    const auto found = board.find(i);
    EXPECT_EQ(found.value_or(i * 3), i * 3);
  }
}

TEST(Board, AReaderFindsTheRightCallOrNone) {
  Board board;
  std::atomic<uint64_t> latest{0};
  constexpr uint64_t kCalls = 200000;
  std::thread writer([&] {
    for (uint64_t i = 1; i <= kCalls; ++i) {
      board.post(i, i * 7919);
      latest.store(i, std::memory_order_relaxed);
    }
  });

  for (uint64_t now = 0; now < kCalls; now = latest.load(std::memory_order_relaxed)) {
    for (const uint64_t back : {0U, 1U, 63U, 64U}) {
      if (back >= now) continue;
      const auto signature = board.find(now - back);
      if (!signature) continue;
      ASSERT_EQ(*signature, (now - back) * 7919);
    }
  }
  writer.join();
  EXPECT_EQ(board.find(kCalls), kCalls * 7919);
}

}  // namespace
}  // namespace tutti::transport::local
