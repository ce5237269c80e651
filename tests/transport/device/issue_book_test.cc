#include "transport/device/issue_book.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

namespace tutti::transport::device::issue_book_test {
namespace {

/// As on the page: memory that is zero.
std::unique_ptr<IssueBook> emptyBook() {
  auto book = std::make_unique<IssueBook>();
  std::memset(static_cast<void*>(book.get()), 0, sizeof *book);
  return book;
}

Call callOf(uint64_t sequence) { return {Collective::AllReduce, DataType::F32, 2, 0, 100 + sequence, sequence, false}; }

TEST(IssueBook, TellsTheLatestCallsInTheirOrder) {
  const auto book = emptyBook();
  EXPECT_TRUE(book->read().empty());
  const Call message{Collective::SendRecv, DataType::I8, 0, 5, uint64_t{1} << 40, 7, true};
  book->write(1, callOf(0));
  book->write(1, message);
  book->write(2, callOf(1));
  auto calls = book->read();
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[0].call, callOf(0));
  EXPECT_EQ(calls[1].call, message);
  EXPECT_EQ(calls[1].group, 1u);
  EXPECT_EQ(calls[2].group, 2u);
  for (uint64_t i = 2; i < 2 + CallRing::kEntries; ++i) book->write(1 + i, callOf(i));
  calls = book->read();
  ASSERT_EQ(calls.size(), CallRing::kEntries - 1);
  for (uint64_t i = 0; i < calls.size(); ++i) ASSERT_EQ(calls[i].call, callOf(3 + i));
  EXPECT_EQ(book->written(), 3 + CallRing::kEntries);
}

TEST(IssueBook, TellsNothingOnceItIsClosed) {
  const auto book = emptyBook();
  book->write(1, callOf(0));
  book->close();
  EXPECT_TRUE(book->isClosed());
  EXPECT_TRUE(book->read().empty());
}

TEST(IssueBook, AnEpisodeLastsAsLongAsNothingComes) {
  const auto book = emptyBook();
  EXPECT_FALSE(book->heldUp());
  book->holdUp(3, 2, Rank(0));
  const auto first = book->heldUp();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->group, 3u);
  EXPECT_EQ(first->place, 2u);
  EXPECT_EQ(first->missing, Rank(0));
  book->holdUp(3, 2, Rank(0));
  book->holdUp(3, 2, Rank(0));
  EXPECT_EQ(book->heldUp()->episode, first->episode);
  EXPECT_EQ(book->heldUp()->looks, first->looks + 2);
  book->holdUp(3, 2, Rank(1));
  EXPECT_NE(book->heldUp()->episode, first->episode);
  EXPECT_EQ(book->heldUp()->missing, Rank(1));
  const auto second = book->heldUp();
  book->goOn();
  EXPECT_FALSE(book->heldUp());
  book->holdUp(3, 2, Rank(1));
  EXPECT_NE(book->heldUp()->episode, second->episode) << "it has gone on in between";
}

TEST(IssueBook, AReaderNeverSeesPartsOfTwoCallsNorAnotherOrder) {
  const auto book = emptyBook();
  std::atomic<bool> isOver = false;
  std::jthread writer([&] {
    for (uint64_t i = 0; !isOver; ++i) book->write(1 + i, callOf(i));
  });
  const auto end = std::shared_ptr<void>(nullptr, [&](void*) { isOver = true; });
  for (int overtaken = 0; overtaken < 100;) {
    const uint64_t written = book->written();
    uint64_t before = 0;
    for (const auto& [group, call] : book->read()) {
      ASSERT_EQ(call, callOf(group - 1));
      ASSERT_GT(group, before);
      before = group;
    }
    if (written > 0 && book->written() > written + 2) ++overtaken;  // while it was read
  }
}

}  // namespace
}  // namespace tutti::transport::device::issue_book_test
