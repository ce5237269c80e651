#include "core/unique_handle.h"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::unique_handle_test {
namespace {

std::vector<int> closed;

struct FakeTraits {
  using Type = int;
  static Type invalid() noexcept { return -1; }
  static void close(Type handle) noexcept { closed.push_back(handle); }
};
using Handle = UniqueHandle<FakeTraits>;

static_assert(sizeof(Handle) == sizeof(int));
static_assert(!std::is_copy_constructible_v<Handle> && !std::is_copy_assignable_v<Handle>);
static_assert(std::is_nothrow_move_constructible_v<Handle> && std::is_nothrow_move_assignable_v<Handle>);

class UniqueHandleTest : public testing::Test {
 protected:
  void SetUp() override { closed.clear(); }
};

TEST_F(UniqueHandleTest, ClosesOnceAtTheEndOfItsLife) {
  { Handle handle(3); EXPECT_TRUE(handle.valid()); EXPECT_EQ(handle.get(), 3); }
  EXPECT_EQ(closed, std::vector<int>{3});
}

TEST_F(UniqueHandleTest, NeverClosesInvalid) {
  { Handle empty; EXPECT_FALSE(empty); Handle moved(std::move(empty)); }
  EXPECT_TRUE(closed.empty());
}

TEST_F(UniqueHandleTest, MovesWithoutClosing) {
  {
    Handle a(4);
    Handle b(std::move(a));
    EXPECT_FALSE(a.valid());
    Handle c(5);
    c = std::move(b);
    EXPECT_EQ(closed, std::vector<int>{5});
    EXPECT_EQ(c.get(), 4);
  }
  EXPECT_EQ(closed, (std::vector<int>{5, 4}));
}

TEST_F(UniqueHandleTest, AssigningToItselfKeepsTheHandle) {
  Handle a(6);
  Handle& same = a;
  a = std::move(same);
  EXPECT_EQ(a.get(), 6);
  a.reset(6);
  EXPECT_TRUE(closed.empty());
}

TEST_F(UniqueHandleTest, ReleaseGivesTheHandleAway) {
  { Handle a(7); EXPECT_EQ(a.release(), 7); EXPECT_FALSE(a); }
  EXPECT_TRUE(closed.empty());
}

TEST_F(UniqueHandleTest, ReceiveClosesTheOldHandleFirst) {
  {
    Handle a(8);
    *a.receive() = 9;
    EXPECT_EQ(closed, std::vector<int>{8});
    EXPECT_EQ(a.get(), 9);
  }
  EXPECT_EQ(closed, (std::vector<int>{8, 9}));
}

}  // namespace
}  // namespace tutti::unique_handle_test
