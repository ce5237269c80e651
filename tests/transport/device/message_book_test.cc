#include "transport/device/message_book.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace tutti::transport::device::message_book_test {
namespace {

/// As on the page: memory that is zero.
std::unique_ptr<MessageBook> emptyBook() {
  auto book = std::make_unique<MessageBook>();
  std::memset(static_cast<void*>(book.get()), 0, sizeof *book);
  return book;
}

TEST(MessageBook, TellsWhatASideHasPosted) {
  const auto book = emptyBook();
  EXPECT_FALSE(book->find(true, 0));
  EXPECT_FALSE(book->hasCome(false, 0));
  book->post(false, 0, 0);
  book->post(false, 1, 4000);
  EXPECT_EQ(book->find(false, 0), 0u);
  EXPECT_EQ(book->find(false, 1), 4000u);
  EXPECT_FALSE(book->find(true, 1)) << "of the sender, not of the receiver";
  EXPECT_FALSE(book->find(false, 2));
  EXPECT_TRUE(book->hasCome(false, 1));
  EXPECT_FALSE(book->hasCome(false, 2));
}

TEST(MessageBook, ForgetsWhatIsFarBehind) {
  const auto book = emptyBook();
  constexpr uint64_t kMany = 1000;
  for (uint64_t n = 0; n < kMany; ++n) book->post(true, n, n);
  for (uint64_t n = 0; n < kMany; ++n) {
    const bool isKept = n >= kMany - MessageBook::kEntries;
    EXPECT_EQ(book->find(true, n), isKept ? std::optional(n) : std::nullopt);
    EXPECT_TRUE(book->hasCome(true, n));
    EXPECT_FALSE(book->find(true, n + kMany));
  }
}

TEST(MessageBook, NumbersBeginAnew) {
  const auto book = emptyBook();
  constexpr uint64_t kEnd = uint64_t{1} << 24;
  for (uint64_t n = kEnd - 3; n < kEnd + 3; ++n) {
    book->post(true, n, 5);
    if ((n + 1) % kEnd != 0) {
      EXPECT_EQ(book->find(true, n), 5u);
    }
    EXPECT_FALSE(book->find(true, n + 1));
  }
}

// One of two that post and look finds what the other said, whatever they overlap.
TEST(MessageBook, OneOfTwoNotices) {
  const auto book = emptyBook();
  constexpr uint64_t kRounds = 20'000;
  std::atomic<uint64_t> ready[2] = {};
  std::array<std::vector<bool>, 2> found;
  const auto side = [&](bool receives) {
    const size_t own = receives ? 1 : 0;
    for (uint64_t n = 0; n < kRounds; ++n) {
      ready[own].store(n + 1);
      while (ready[1 - own].load() < n + 1) std::this_thread::yield();
      book->post(receives, n, receives ? 8 : 16);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      found[own].push_back(book->find(!receives, n).has_value());
    }
  };
  std::thread other([&] { side(true); });
  side(false);
  other.join();
  for (uint64_t n = 0; n < kRounds; ++n) ASSERT_TRUE(found[0][n] || found[1][n]) << n;
}

TEST(MessageBook, HasAKeyForEveryNumber) {
  constexpr uint64_t kRound = (uint64_t{1} << 24) - 1;
  for (const uint64_t around : {kRound, kRound + 1, 5 * kRound}) {
    const auto book = emptyBook();
    const uint64_t first = around - 70;
    for (uint64_t number = first; number <= around + 10; ++number) {
      EXPECT_FALSE(book->hasCome(true, number)) << number;
      book->post(true, number, 8);
      EXPECT_EQ(book->find(true, number), 8u) << number;
      for (uint64_t before = std::max(first, number - 100); before <= number; ++before)
        EXPECT_TRUE(book->hasCome(true, before)) << before << " of " << number;
    }
  }
}

}  // namespace
}  // namespace tutti::transport::device::message_book_test
