#include "core/arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <new>

namespace tutti::arena_test {
namespace {

bool aligned(const void* address, size_t alignment) { return reinterpret_cast<uintptr_t>(address) % alignment == 0; }

TEST(Arena, HandsOutDisjointAlignedMemory) {
  Arena arena(64);
  struct Piece { std::byte* at; size_t bytes; };
  std::vector<Piece> pieces;
  uint8_t mark = 0;
  for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
    for (size_t bytes : {size_t{1}, size_t{7}, size_t{100}, size_t{5000}}) {
      auto* at = static_cast<std::byte*>(arena.allocate(bytes, alignment));
      ASSERT_TRUE(aligned(at, alignment));
      std::memset(at, ++mark, bytes);
      pieces.push_back({at, bytes});
    }
  }
  mark = 0;
  for (const Piece& piece : pieces) {
    ++mark;
    for (size_t i = 0; i < piece.bytes; ++i) ASSERT_EQ(piece.at[i], std::byte{mark});
  }
}

TEST(Arena, ResetUsesTheSameBlocksAgain) {
  Arena arena(128);
  auto fill = [&] {
    void* first = arena.allocate(100);
    for (int i = 0; i < 50; ++i) arena.allocate(100);
    arena.allocate(10'000);
    return first;
  };
  void* first = fill();
  const size_t capacity = arena.capacity();
  for (int round = 0; round < 10; ++round) {
    arena.reset();
    EXPECT_EQ(fill(), first);
    EXPECT_EQ(arena.capacity(), capacity);
  }
}

TEST(Arena, ABlockLargerThanTheFirstIsUsedAgainAfterReset) {
  Arena arena(16);
  arena.allocate(8);
  void* large = arena.allocate(1000);
  const size_t capacity = arena.capacity();
  arena.reset();
  EXPECT_EQ(arena.allocate(1000), large);
  EXPECT_EQ(arena.capacity(), capacity);
}

TEST(Arena, MakesObjectsAndArrays) {
  struct Point { int x; int y; };
  Arena arena;
  Point* point = arena.make<Point>(Point{1, 2});
  std::span<uint64_t> numbers = arena.makeArray<uint64_t>(1000);
  EXPECT_EQ(point->y, 2);
  for (uint64_t number : numbers) EXPECT_EQ(number, 0U);
  EXPECT_EQ(arena.makeArray<int>(0).size(), 0U);
}

TEST(Arena, ZeroBytesGiveAnAddress) {
  Arena arena;
  EXPECT_NE(arena.allocate(0), nullptr);
}

#if !defined(TUTTI_SANITIZED)
TEST(Arena, ImpossibleSizesAreOutOfMemory) {
  Arena arena;
  volatile size_t all = std::numeric_limits<size_t>::max();  // volatile: a constant would be a compile-time warning
  EXPECT_THROW(arena.allocate(all), std::bad_alloc);
  EXPECT_THROW(arena.makeArray<uint64_t>(all / 4), std::bad_alloc);
  EXPECT_THROW(arena.allocate(all / 2), std::bad_alloc);
  EXPECT_NE(arena.allocate(1), nullptr);
}
#endif

}  // namespace
}  // namespace tutti::arena_test
