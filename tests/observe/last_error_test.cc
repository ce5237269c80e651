#include "observe/last_error.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/format.h"

namespace tutti::observe::last_error_test {
namespace {

/// Slots are kept for the life of the process by design, so the objects of these tests are too.
LastError& makeLastError() {
  static auto* const kept = new std::vector<LastError*>;
  kept->push_back(new LastError);
  return *kept->back();
}

TEST(LastError, StartsEmptyAndHoldsTheLatestText) {
  LastError& error = makeLastError();
  EXPECT_STREQ(error.read(), "");
  error.set("one");
  error.set("two");
  EXPECT_STREQ(error.read(), "two");
}

TEST(LastError, APointerKeepsItsText) {
  LastError& error = makeLastError();
  error.set("first");
  const char* first = error.read();
  for (int i = 0; i < 10'000; ++i) error.set(format("other {}", i));
  EXPECT_STREQ(first, "first");
  EXPECT_STREQ(error.read(), "other 9999");
  EXPECT_STREQ(first, "first");
}

TEST(LastError, TheSameTextTakesNoFurtherSlot) {
  LastError& error = makeLastError();
  error.set("same");
  const char* first = error.read();
  EXPECT_EQ(error.read(), first);
  for (int i = 0; i < 1000; ++i) {
    error.set("same");
    ASSERT_EQ(error.read(), first);
  }
}

TEST(LastError, SlotsAreBoundedAndUsedAgain) {
  LastError& error = makeLastError();
  error.set("text 0");
  const char* first = error.read();
  for (size_t i = 1; i <= LastError::kSlots; ++i) {
    error.set(format("text {}", i));
    ASSERT_EQ(error.read(), format("text {}", i));
  }
  EXPECT_EQ(error.read(), first);
}

TEST(LastError, LongTextsAreCut) {
  LastError& error = makeLastError();
  error.set(std::string(3000, 'x'));
  EXPECT_EQ(std::strlen(error.read()), 1023U);
}

TEST(LastError, ReadersNeverSeeATornText) {
  LastError& error = makeLastError();
  constexpr int kReaders = 4;
  std::atomic<bool> done{false};
  std::vector<std::thread> writers;
  for (char letter = 'a'; letter < 'e'; ++letter) {
    writers.emplace_back([&error, &done, letter] {
      for (size_t bytes = 1; !done.load(); bytes = bytes % 1000 + 1) error.set(std::string(bytes, letter));
    });
  }
  std::vector<std::thread> readers;
  for (int r = 0; r < kReaders; ++r) {
    readers.emplace_back([&error] {
      // All reads together stay below kSlots, within which a pointer is promised to keep its text.
      for (size_t i = 0; i < LastError::kSlots / kReaders - 1; ++i) {
        const std::string text = error.read();
        EXPECT_EQ(text.find_first_not_of(text.empty() ? 'a' : text[0]), std::string::npos);
        std::this_thread::yield();
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  done.store(true);
  for (std::thread& writer : writers) writer.join();
}

}  // namespace
}  // namespace tutti::observe::last_error_test
