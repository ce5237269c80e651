#include "transport/local/pipe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

namespace tutti::transport::local {
namespace {

struct Ends {
  Pipe pipe;
  SendEnd send;
  RecvEnd recv;

  static Ends make(uint32_t slots, uint64_t slotBytes) {
    auto pipe = Pipe::create(slots, slotBytes);
    if (!pipe) ADD_FAILURE() << pipe.error().text();
    const PipeView view = pipe->view();
    return {std::move(*pipe), SendEnd(view), RecvEnd(view)};
  }
};

void pushInline(SendEnd& end, uint64_t value) {
  end.head().lent = 0;
  end.head().bytes = sizeof value;
  end.head().signature = value;
  std::memcpy(end.head().inlineData, &value, sizeof value);
  end.push(false);
}

uint64_t readValue(const RecvEnd& end) {
  uint64_t value = 0;
  std::memcpy(&value, end.payload(), sizeof value);
  return value;
}

TEST(Pipe, HoldsAsManyMessagesAsItHasSlots) {
  for (const uint32_t slots : {1U, 2U, 3U, 8U}) {
    Ends ends = Ends::make(slots, 64);
    for (uint32_t i = 0; i < slots; ++i) {
      ASSERT_TRUE(ends.send.ready()) << i;
      pushInline(ends.send, i);
    }
    EXPECT_FALSE(ends.send.ready()) << slots;
    ASSERT_TRUE(ends.recv.ready());
    ends.recv.release();
    EXPECT_TRUE(ends.send.ready());
    pushInline(ends.send, slots);
    EXPECT_FALSE(ends.send.ready());
  }
}

/// How many messages the sender may send now; they are sent.
uint32_t fill(SendEnd& end) {
  uint32_t sent = 0;
  for (; end.ready(); ++sent) pushInline(end, sent);
  return sent;
}

TEST(Pipe, SlotsThatAreReleasedLaterComeBackByHalves) {
  for (const uint32_t slots : {1U, 2U, 3U, 4U, 5U, 8U}) {
    Ends ends = Ends::make(slots, 64);
    const uint32_t half = (slots + 1) / 2;
    EXPECT_EQ(fill(ends.send), slots);
    for (uint32_t i = 1; i < half; ++i) ends.recv.releaseLater();
    EXPECT_FALSE(ends.send.ready()) << slots;
    ends.recv.releaseLater();
    EXPECT_EQ(fill(ends.send), half) << slots;
    // What was kept back comes with the first release of the ordinary kind, or when it is asked for.
    if (half < 2) continue;
    ends.recv.releaseLater();
    EXPECT_FALSE(ends.send.ready());
    ends.recv.giveBack();
    EXPECT_EQ(fill(ends.send), 1U);
    if (half < 3) continue;
    ends.recv.releaseLater();
    ends.recv.release();
    EXPECT_EQ(fill(ends.send), 2U);
  }
}

TEST(Pipe, ShortMessagesArriveWhole) {
  Ends ends = Ends::make(2, 64);
  for (uint64_t bytes = 0; bytes <= kInlineBytes; ++bytes) {
    std::vector<unsigned char> value(bytes);
    for (uint64_t i = 0; i < bytes; ++i) value[i] = static_cast<unsigned char>(bytes + i);
    ASSERT_TRUE(ends.send.ready());
    ends.send.pushInline(bytes + 7, value.data(), bytes);
    ASSERT_TRUE(ends.recv.ready());
    const SlotHead& head = ends.recv.head();
    EXPECT_EQ(head.signature, bytes + 7);
    EXPECT_EQ(head.bytes, bytes);
    EXPECT_EQ(head.lent, 0U);
    EXPECT_TRUE(std::equal(value.begin(), value.end(), reinterpret_cast<const unsigned char*>(ends.recv.payload())));
    ends.recv.release();
  }
}

TEST(Pipe, IsEmptyUntilSomethingIsPushed) {
  Ends ends = Ends::make(2, 64);
  EXPECT_FALSE(ends.recv.ready());
  pushInline(ends.send, 7);
  EXPECT_TRUE(ends.recv.ready());
  EXPECT_TRUE(ends.recv.ready()) << "looking changes nothing";
  EXPECT_EQ(ends.recv.head().signature, 7U);
  ends.recv.release();
  EXPECT_FALSE(ends.recv.ready());
  EXPECT_EQ(ends.send.sent(), 1U);
  EXPECT_EQ(ends.recv.received(), 1U);
}

TEST(Pipe, KeepsTheOrderRoundManyLaps) {
  Ends ends = Ends::make(3, 64);
  uint64_t sent = 0;
  uint64_t received = 0;
  while (received < 1000) {
    while (sent < 1000 && ends.send.ready()) pushInline(ends.send, sent++);
    ASSERT_TRUE(ends.recv.ready());
    EXPECT_EQ(readValue(ends.recv), received++);
    ends.recv.release();
  }
}

TEST(Pipe, StagingSpacesDoNotOverlapAndHoldAWholeSlice) {
  constexpr uint64_t kBytes = 100;  // rounded up to cache lines
  Ends ends = Ends::make(4, kBytes);
  EXPECT_GE(ends.send.slotBytes(), kBytes);
  for (int i = 0; i < 4; ++i) {
    SlotHead& head = ends.send.head();
    head.lent = 0;
    head.bytes = kBytes;
    std::memset(ends.send.staging(), 'a' + i, ends.send.slotBytes());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(ends.send.staging()) % kCacheLine, 0U);
    ends.send.push(false);
  }
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(ends.recv.ready());
    for (uint64_t k = 0; k < kBytes; ++k) ASSERT_EQ(static_cast<char>(ends.recv.payload()[k]), 'a' + i);
    ends.recv.release();
  }
}

TEST(Pipe, WithoutStagingStillCarriesInlineDataAndReferences) {
  Ends ends = Ends::make(2, 0);
  pushInline(ends.send, 11);
  const uint64_t own = 12;
  ends.send.head().lent = reinterpret_cast<uint64_t>(&own);
  ends.send.head().bytes = sizeof own;
  ends.send.push(true);
  EXPECT_EQ(readValue(ends.recv), 11U);
  ends.recv.release();
  EXPECT_EQ(ends.recv.payload(), reinterpret_cast<const std::byte*>(&own)) << "no copy on the way";
}

TEST(Pipe, IsDrainedWhenTheLastReferenceHasBeenRead) {
  Ends ends = Ends::make(4, 64);
  EXPECT_TRUE(ends.send.drained());
  pushInline(ends.send, 1);
  EXPECT_TRUE(ends.send.drained()) << "what was copied may stay unread";
  uint64_t own = 2;
  ends.send.head().lent = reinterpret_cast<uint64_t>(&own);
  ends.send.push(true);
  pushInline(ends.send, 3);
  EXPECT_FALSE(ends.send.drained());
  ends.recv.release();
  EXPECT_FALSE(ends.send.drained());
  ends.recv.release();
  EXPECT_TRUE(ends.send.drained()) << "the message behind it does not count";
  EXPECT_TRUE(ends.recv.ready());
}

TEST(Pipe, FailsForMoreMemoryThanThereIs) {
  const auto pipe = Pipe::create(8, uint64_t{1} << 59);
  ASSERT_FALSE(pipe);
  EXPECT_EQ(pipe.error().code(), Code::SystemError);
  EXPECT_NE(pipe.error().text().find("create pipe"), std::string::npos) << pipe.error().text();
}

TEST(Pipe, ManyPipesTakeNoMemoryUntilTheyAreUsed) {
  std::vector<Pipe> pipes;
  for (int i = 0; i < 200; ++i) {
    auto pipe = Pipe::create(8, 1 << 20);  // 1.6 GiB of address space
    ASSERT_TRUE(pipe);
    pipes.push_back(std::move(*pipe));
  }
}

/// One thread writes, one reads: inline, staged and by reference in turns, with 2 slots so that both sides wait often.
TEST(Pipe, CarriesEverythingBetweenTwoThreads) {
  constexpr uint64_t kMessages = 5000;
  constexpr uint64_t kWords = 16;
  Ends ends = Ends::make(2, kWords * sizeof(uint64_t));
  std::vector<uint64_t> buffer(kWords);  // what is sent by reference; changed again once it is drained

  std::thread sender([&] {
    for (uint64_t i = 0; i < kMessages; ++i) {
      while (!ends.send.ready()) std::this_thread::yield();
      SlotHead& head = ends.send.head();
      head.signature = i;
      if (i % 3 == 0) {
        pushInline(ends.send, i);
        continue;
      }
      const bool byReference = i % 3 == 1;
      while (byReference && !ends.send.drained()) std::this_thread::yield();
      auto* words = byReference ? buffer.data() : reinterpret_cast<uint64_t*>(ends.send.staging());
      for (uint64_t k = 0; k < kWords; ++k) words[k] = i + k;
      head.lent = byReference ? reinterpret_cast<uint64_t>(words) : 0;
      head.bytes = kWords * sizeof(uint64_t);
      ends.send.push(byReference);
    }
    while (!ends.send.drained()) std::this_thread::yield();
    buffer.assign(kWords, 0);
  });

  for (uint64_t i = 0; i < kMessages; ++i) {
    while (!ends.recv.ready()) std::this_thread::yield();
    const SlotHead& head = ends.recv.head();
    ASSERT_EQ(head.signature, i);
    ASSERT_EQ(readValue(ends.recv), i);
    if (i % 3 != 0) {
      uint64_t words[kWords];
      std::memcpy(words, ends.recv.payload(), sizeof words);
      for (uint64_t k = 0; k < kWords; ++k) ASSERT_EQ(words[k], i + k);
    }
    ends.recv.release();
  }
  sender.join();
}

}  // namespace
}  // namespace tutti::transport::local
