#include "transport/local/window.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>
#include <vector>

namespace tutti::transport::local::window_test {
namespace {

TEST(Window, StartsBeforeTheFirstEpoch) {
  auto window = Window::create(3, 128);
  ASSERT_TRUE(window);
  for (uint64_t bank = 0; bank < 2; ++bank)
    for (int32_t r = 0; r < 3; ++r) EXPECT_EQ(window->view().head(bank, Rank(r)).epoch.load(), 0U);
  EXPECT_GE(window->view().cellBytes, 128U);
  EXPECT_EQ(window->view().ranks, 3);
}

TEST(Window, EveryRankHasACellOfItsOwnInEachBank) {
  auto window = Window::create(5, 100);
  ASSERT_TRUE(window);
  const WindowView& view = window->view();
  std::set<const void*> places;
  for (uint64_t epoch = 1; epoch <= 2; ++epoch)
    for (int32_t r = 0; r < 5; ++r) {
      EXPECT_TRUE(places.insert(&view.head(epoch, Rank(r))).second);
      std::byte* large = view.payload(epoch, Rank(r), 100);
      EXPECT_TRUE(places.insert(large).second);
      std::memset(large, static_cast<int>(epoch * 10 + static_cast<uint64_t>(r)), 100);
    }
  for (uint64_t epoch = 1; epoch <= 2; ++epoch)
    for (int32_t r = 0; r < 5; ++r)
      for (int k = 0; k < 100; ++k)
        ASSERT_EQ(static_cast<uint64_t>(view.payload(epoch, Rank(r), 100)[k]), epoch * 10 + static_cast<uint64_t>(r));
}

TEST(Window, BanksTakeTurns) {
  auto window = Window::create(2, 64);
  ASSERT_TRUE(window);
  const WindowView& view = window->view();
  EXPECT_NE(&view.head(7, Rank(1)), &view.head(8, Rank(1)));
  EXPECT_EQ(&view.head(7, Rank(1)), &view.head(9, Rank(1)));
  EXPECT_EQ(view.payload(8, Rank(0), 64), view.payload(10, Rank(0), 64));
}

TEST(Window, LongPayloadsMoveOnThroughTheirCellAndStayInside) {
  constexpr uint64_t kCell = 4 * kMovingBytes;
  auto window = Window::create(2, kCell);
  ASSERT_TRUE(window);
  const WindowView& view = window->view();
  for (const uint64_t bytes : {kMovingBytes, kMovingBytes + 1, 2 * kMovingBytes, 2 * kMovingBytes + 1, kCell}) {
    std::set<const std::byte*> places;
    for (uint64_t epoch = 2; epoch < 34; ++epoch) {
      const std::byte* const cell = view.payload(epoch % 2, Rank(1), 1000);
      const std::byte* const place = view.payload(epoch, Rank(1), bytes);
      ASSERT_GE(place, cell);
      ASSERT_LE(place + bytes, cell + view.cellBytes);
      EXPECT_EQ((place - cell) % static_cast<std::ptrdiff_t>(kCacheLine), 0);
      places.insert(place);
    }
    EXPECT_EQ(places.size(), 2 * (kCell / ((bytes + kCacheLine - 1) / kCacheLine * kCacheLine))) << bytes;
  }
}

TEST(Window, SmallPayloadsTravelInTheHead) {
  auto window = Window::create(2, 64);
  ASSERT_TRUE(window);
  const WindowView& view = window->view();
  EXPECT_EQ(view.payload(1, Rank(1), kCellInlineBytes), view.head(1, Rank(1)).inlineData);
  EXPECT_NE(view.payload(1, Rank(1), kCellInlineBytes + 1), view.head(1, Rank(1)).inlineData);
}

TEST(Window, FailsForMoreMemoryThanThereIs) {
  const auto window = Window::create(16, uint64_t{1} << 58);
  ASSERT_FALSE(window);
  EXPECT_EQ(window.error().code(), Code::SystemError);
  EXPECT_NE(window.error().text().find("create window"), std::string::npos) << window.error().text();
}

/// The argument of invariant 2, run: nobody writes epoch e + 2 before everybody has read e, with no barrier but the arrivals.
TEST(Window, TwoBanksNeedNoTrailingBarrier) {
  constexpr int32_t kRanks = 3;
  constexpr uint64_t kEpochs = 3000;
  constexpr uint64_t kWords = 8;  // beyond the inline part
  std::vector<Window> windows;
  for (int32_t r = 0; r < kRanks; ++r) {
    auto window = Window::create(kRanks, kWords * sizeof(uint64_t));
    ASSERT_TRUE(window);
    windows.push_back(std::move(*window));
  }
  const auto run = [&](int32_t self) {
    for (uint64_t epoch = 1; epoch <= kEpochs; ++epoch) {
      for (int32_t peer = 0; peer < kRanks; ++peer) {
        const WindowView& view = windows[static_cast<size_t>(peer)].view();
        uint64_t words[kWords];
        for (uint64_t k = 0; k < kWords; ++k) words[k] = epoch * 100 + static_cast<uint64_t>(self);
        std::memcpy(view.payload(epoch, Rank(self), sizeof words), words, sizeof words);
        view.head(epoch, Rank(self)).epoch.store(epoch, std::memory_order_release);
      }
      const WindowView& own = windows[static_cast<size_t>(self)].view();
      for (int32_t peer = 0; peer < kRanks; ++peer) {
        while (own.head(epoch, Rank(peer)).epoch.load(std::memory_order_acquire) != epoch) std::this_thread::yield();
        uint64_t words[kWords];
        std::memcpy(words, own.payload(epoch, Rank(peer), sizeof words), sizeof words);
        for (const uint64_t word : words) ASSERT_EQ(word, epoch * 100 + static_cast<uint64_t>(peer));
      }
    }
  };
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < kRanks; ++r) threads.emplace_back(run, r);
  for (auto& t : threads) t.join();
}

}  // namespace
}  // namespace tutti::transport::local::window_test
