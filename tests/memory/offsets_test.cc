#include "memory/offsets.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace tutti::memory::offsets_test {
namespace {

TEST(Offsets, TheLowestPartThatFits) {
  Offsets offsets(Bytes(100));
  EXPECT_TRUE(offsets.empty());
  EXPECT_EQ(offsets.take(30, 1), 0u);
  EXPECT_EQ(offsets.take(30, 1), 30u);
  EXPECT_EQ(offsets.take(41, 1), std::nullopt);
  EXPECT_EQ(offsets.take(40, 1), 60u);
  EXPECT_EQ(offsets.take(1, 1), std::nullopt);
  offsets.give(30, 30);
  EXPECT_EQ(offsets.take(10, 1), 30u);
  offsets.give(0, 30);
  offsets.give(30, 10);
  offsets.give(60, 40);
  EXPECT_TRUE(offsets.empty());
  EXPECT_EQ(Offsets(Bytes(0)).take(1, 1), std::nullopt);
}

TEST(Offsets, AlignedPartsLeaveTheRestUsable) {
  Offsets offsets(Bytes(64));
  EXPECT_EQ(offsets.take(3, 1), 0u);
  EXPECT_EQ(offsets.take(16, 16), 16u);
  EXPECT_EQ(offsets.take(13, 1), 3u);
  EXPECT_EQ(offsets.take(33, 16), std::nullopt);
  EXPECT_EQ(offsets.take(32, 32), 32u);
}

// Against a map of bytes: nothing overlaps, and what is all given back is one part again.
TEST(Offsets, RandomUse) {
  constexpr uint64_t kSize = 4096;
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    Offsets offsets{Bytes(kSize)};
    std::vector<bool> taken(kSize);
    std::map<uint64_t, uint64_t> parts;
    for (int step = 0; step < 300; ++step) {
      if (!parts.empty() && random() % 2 == 0) {
        const auto part = std::next(parts.begin(), static_cast<long>(random() % parts.size()));
        offsets.give(part->first, part->second);
        for (uint64_t i = 0; i < part->second; ++i) taken[part->first + i] = false;
        parts.erase(part);
        continue;
      }
      const uint64_t bytes = 1 + random() % 200;
      const uint64_t alignment = uint64_t{1} << (random() % 7);
      const auto offset = offsets.take(bytes, alignment);
      uint64_t expected = 0;  // the lowest aligned place where all is free
      for (uint64_t run = 0; expected + bytes <= kSize; expected += alignment, run = 0) {
        while (run < bytes && !taken[expected + run]) ++run;
        if (run == bytes) break;
      }
      ASSERT_EQ(offset, expected + bytes <= kSize ? std::optional(expected) : std::nullopt);
      if (!offset) continue;
      for (uint64_t i = 0; i < bytes; ++i) taken[*offset + i] = true;
      parts[*offset] = bytes;
    }
    for (const auto& [offset, bytes] : parts) offsets.give(offset, bytes);
    EXPECT_TRUE(offsets.empty());
  }
}

}  // namespace
}  // namespace tutti::memory::offsets_test
