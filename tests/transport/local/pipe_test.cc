#include "transport/local/pipe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

namespace tutti::transport::local::pipe_test {
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

constexpr uint64_t kShort = sizeof(uint64_t);
constexpr uint64_t kLong = kShortBytes + 1;

void pushStaged(SendEnd& end) {
  end.head().lent = 0;
  end.head().bytes = kLong;
  end.push(false);
}

TEST(Pipe, HoldsAsManyLongMessagesAsItHasSlots) {
  for (const uint32_t slots : {1U, 2U, 3U, 8U, 20U}) {
    Ends ends = Ends::make(slots, kLong);
    for (uint32_t i = 0; i < slots; ++i) {
      ASSERT_TRUE(ends.send.ready(kLong)) << i;
      pushStaged(ends.send);
    }
    EXPECT_FALSE(ends.send.ready(kLong)) << slots;
    ASSERT_TRUE(ends.recv.ready());
    ends.recv.release();
    EXPECT_TRUE(ends.send.ready(kLong));
    pushStaged(ends.send);
    EXPECT_FALSE(ends.send.ready(kLong));
  }
}

/// How many short messages the sender may send now; they are sent.
uint32_t fill(SendEnd& end) {
  uint32_t sent = 0;
  for (; end.ready(kShort); ++sent) pushInline(end, sent);
  return sent;
}

TEST(Pipe, HoldsMoreMessagesThatTravelInTheirHeads) {
  for (const uint32_t slots : {1U, 2U, 3U, 4U, 5U, 8U, 16U, 20U}) {
    Ends ends = Ends::make(slots, kLong);
    const uint32_t heads = ends.pipe.view().numHeads;
    EXPECT_EQ(heads % slots, 0U);
    EXPECT_GE(heads, std::max(slots, 12U));
    EXPECT_EQ(fill(ends.send), heads);
    // A long one waits until fewer than slots are left, whatever they are.
    for (uint32_t left = heads; left > 0; --left) {
      EXPECT_EQ(ends.send.ready(kLong), left < slots) << left;
      EXPECT_EQ(ends.send.ready(kShort), left < heads) << left;
      EXPECT_EQ(readValue(ends.recv), heads - left);
      ends.recv.release();
    }
  }
}

TEST(Pipe, LongAndShortMessagesTakeTurnsRoundManyLaps) {
  for (const uint32_t slots : {1U, 3U, 4U}) {
    Ends ends = Ends::make(slots, kLong);
    uint64_t received = 0;
    for (uint64_t sent = 0; sent < 300; ++sent) {
      const bool isLong = sent % 5 < 2;
      while (!ends.send.ready(isLong ? kLong : kShort)) {
        ASSERT_TRUE(ends.recv.ready());
        EXPECT_EQ(readValue(ends.recv), received++);
        ends.recv.release();
      }
      if (isLong) {
        std::memcpy(ends.send.staging(kLong), &sent, sizeof sent);
        pushStaged(ends.send);
      } else {
        pushInline(ends.send, sent);
      }
    }
    for (; ends.recv.ready(); ends.recv.release()) EXPECT_EQ(readValue(ends.recv), received++);
    EXPECT_EQ(received, 300U);
  }
}

TEST(Pipe, WhatIsReleasedLaterLeavesASlot) {
  for (const uint32_t slots : {1U, 2U, 3U, 4U, 5U, 8U}) {
    Ends ends = Ends::make(slots, kLong);
    const uint32_t heads = fill(ends.send);
    const uint32_t together = std::max(1U, slots - 1);
    for (uint32_t i = 1; i < together; ++i) ends.recv.releaseLater();
    EXPECT_FALSE(ends.send.ready(kShort)) << slots;
    ends.recv.releaseLater();
    EXPECT_EQ(fill(ends.send), together) << slots;
    // With nothing on its way, the sender may send a long one, whatever is kept back.
    for (uint32_t i = 0; i < heads; ++i) ends.recv.releaseLater();
    EXPECT_TRUE(ends.send.ready(kLong)) << slots;
    // What was kept back comes with the first release of the ordinary kind, or when it is asked for.
    ends.recv.giveBack();
    if (together < 2) continue;
    EXPECT_EQ(fill(ends.send), heads);
    ends.recv.releaseLater();
    EXPECT_FALSE(ends.send.ready(kShort));
    ends.recv.giveBack();
    EXPECT_EQ(fill(ends.send), 1U);
    if (together < 3) continue;
    ends.recv.releaseLater();
    ends.recv.release();
    EXPECT_EQ(fill(ends.send), 2U);
  }
}

TEST(Pipe, ShortMessagesArriveWhole) {
  Ends ends = Ends::make(2, 64);
  for (uint64_t bytes = 0; bytes <= kShortBytes; ++bytes) {
    std::vector<unsigned char> value(bytes);
    for (uint64_t i = 0; i < bytes; ++i) value[i] = static_cast<unsigned char>(bytes + i);
    ASSERT_TRUE(ends.send.ready(bytes));
    ends.send.pushShort(bytes + 7, value.data(), bytes);
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
    while (sent < 1000 && ends.send.ready(kShort)) pushInline(ends.send, sent++);
    ASSERT_TRUE(ends.recv.ready());
    EXPECT_EQ(readValue(ends.recv), received++);
    ends.recv.release();
  }
}

TEST(Pipe, StagingSpacesDoNotOverlapAndHoldAWholeSlice) {
  constexpr uint64_t kBytes = kShortBytes + 4;  // rounded up to cache lines
  Ends ends = Ends::make(4, kBytes);
  EXPECT_GE(ends.send.slotBytes(), kBytes);
  for (int i = 0; i < 4; ++i) {
    SlotHead& head = ends.send.head();
    head.lent = 0;
    head.bytes = kBytes;
    std::memset(ends.send.staging(kBytes), 'a' + i, ends.send.slotBytes());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(ends.send.staging(kBytes)) % kCacheLine, 0U);
    ends.send.push(false);
  }
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(ends.recv.ready());
    for (uint64_t k = 0; k < kBytes; ++k) ASSERT_EQ(static_cast<char>(ends.recv.payload()[k]), 'a' + i);
    ends.recv.release();
  }
}

TEST(Pipe, LongValuesMoveOnThroughTheirSlotAndStayInside) {
  constexpr uint64_t kSlot = 5 * kMovingBytes;
  Ends ends = Ends::make(2, kSlot);
  const std::byte* const first = ends.send.staging(1000);
  std::set<const std::byte*> places;
  for (uint64_t i = 0; i < 60; ++i) {
    const uint64_t bytes = i % 3 == 0 ? kSlot : kMovingBytes + i;
    std::byte* const space = ends.send.staging(bytes);
    ASSERT_GE(space, first + i % 2 * ends.send.slotBytes());
    ASSERT_LE(space + bytes, first + (i % 2 + 1) * ends.send.slotBytes());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(space) % kCacheLine, 0U);
    places.insert(space);
    std::memset(space, static_cast<int>(i), bytes);
    ends.send.head().lent = 0;
    ends.send.head().bytes = bytes;
    ends.send.push(false);
    ASSERT_TRUE(ends.recv.ready());
    ASSERT_EQ(ends.recv.payload(), space) << "both sides count alike";
    ends.recv.release();
  }
  EXPECT_GE(places.size(), 8U);
}

TEST(Pipe, BetweenManyRanksLongValuesMoveThroughLess) {
  std::vector<std::byte> memory(pipeBytes(4, 1 << 18));
  const auto placesOf = [&](int32_t ranks, uint64_t bytes) {
    const PipeView view = pipeIn(memory.data(), 4, 1 << 18, ranks);
    std::set<const std::byte*> places;
    for (uint64_t message = 0; message < 200; ++message) {
      const std::byte* const place = view.staging(message, bytes);
      EXPECT_LE(place + bytes, memory.data() + memory.size());
      places.insert(place);
    }
    return places.size();
  };
  EXPECT_EQ(placesOf(2, kMovingBytes), 64U);
  EXPECT_EQ(placesOf(3, kMovingBytes), 64U);
  EXPECT_EQ(placesOf(8, kMovingBytes), 16U) << "2 MiB of all seven, a quarter of that in each slot";
  EXPECT_EQ(placesOf(32, kMovingBytes), 4U) << "a slot each";
  EXPECT_EQ(placesOf(1000, 1 << 18), 4U);
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
  constexpr uint64_t kWords = kLong / sizeof(uint64_t) + 1;
  Ends ends = Ends::make(2, kWords * sizeof(uint64_t));
  std::vector<uint64_t> buffer(kWords);  // what is sent by reference; changed again once it is drained

  std::thread sender([&] {
    for (uint64_t i = 0; i < kMessages; ++i) {
      while (!ends.send.ready(i % 3 == 0 ? kShort : kWords * sizeof(uint64_t))) std::this_thread::yield();
      SlotHead& head = ends.send.head();
      head.signature = i;
      if (i % 3 == 0) {
        pushInline(ends.send, i);
        continue;
      }
      const bool byReference = i % 3 == 1;
      while (byReference && !ends.send.drained()) std::this_thread::yield();
      auto* words = byReference ? buffer.data() : reinterpret_cast<uint64_t*>(ends.send.staging(kWords * sizeof(uint64_t)));
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
}  // namespace tutti::transport::local::pipe_test
