// The length of waits, as devices reckon it.
#include <gtest/gtest.h>

#include <random>

#include "exec/cuda/verdict.h"

namespace tutti::exec::cuda::ticks_test {
namespace {

constexpr uint64_t kTickNs = uint64_t{1} << kTickShift;

/// What a wait from `since` to `now` looks like to isPast(), both in ns.
uint32_t waited(uint64_t since, uint64_t now) { return tickOf(now) - beginningAt(tickOf(since)); }

TEST(Ticks, ABeginningIsNeverZeroAndATickEarlyAtMost) {
  for (const uint32_t tick : {0u, 1u, 2u, 3u, 77u, 78u, 0x7fffffffu, 0x80000000u, 0xfffffffeu, 0xffffffffu}) {
    EXPECT_NE(beginningAt(tick), 0u) << tick;
    EXPECT_LE(tick - beginningAt(tick), 1u) << tick;
  }
}

TEST(Ticks, WithoutALimitNothingIsPastIt) {
  for (const uint32_t ticks : {0u, 1u, 1000u, 0xffffffffu}) EXPECT_FALSE(isPast(ticks, 0)) << ticks;
}

TEST(Ticks, ALimitIsNeverMetEarlyNorMuchLater) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200'000; ++i) {
    const uint64_t limitNs = 1 + random() % (uint64_t{1} << (random() % 50));
    const uint64_t since = random() % 2 == 0 ? random() : (uint64_t{1} << 52) - random() % limitNs;  // ticks may come round meanwhile
    ASSERT_FALSE(isPast(waited(since, since + limitNs), limitNs)) << limitNs << " from " << since;
    ASSERT_TRUE(isPast(waited(since, since + limitNs + 4 * kTickNs), limitNs)) << limitNs << " from " << since;
  }
}

TEST(Ticks, AVeryLongLimitIsNone) {
  EXPECT_FALSE(isPast(0xffffffffu, uint64_t{1} << 63));
}

}  // namespace
}  // namespace tutti::exec::cuda::ticks_test
