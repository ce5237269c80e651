#include "exec/host/reduce/float_environment.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <limits>

namespace tutti::exec::host::float_environment_test {
namespace {

// volatile: these must be computed here and now, not by the compiler.
float thirdOf(float x) {
  const volatile float dividend = x, three = 3;
  return dividend / three;
}
float halfOf(float x) {
  const volatile float number = x, half = 0.5F;
  return number * half;
}

class FloatEnvironment : public testing::Test {
 protected:
  void SetUp() override { std::fegetenv(&saved_); }
  void TearDown() override { std::fesetenv(&saved_); }

 private:
  std::fenv_t saved_;
};

TEST_F(FloatEnvironment, RoundsToNearestInsideAndAsTheCallerOutside) {
  const float nearest = thirdOf(1);
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  const float upward = thirdOf(-1);
  ASSERT_NE(upward, -nearest) << "the processor does not round upward: the test shows nothing";
  {
    const DefaultFloatEnvironment environment;
    EXPECT_EQ(thirdOf(-1), -nearest);
  }
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  EXPECT_EQ(thirdOf(-1), upward);
}

#if defined(__SSE2__)
TEST_F(FloatEnvironment, KeepsSubnormalsInsideWhateverTheCallerDoes) {
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x40;
  const float least = std::numeric_limits<float>::min();
  _mm_setcsr(_mm_getcsr() | kFlushToZero | kDenormalsAreZero);
  ASSERT_EQ(halfOf(least), 0.0F);
  {
    const DefaultFloatEnvironment environment;
    EXPECT_GT(halfOf(least), 0.0F);
    EXPECT_EQ(halfOf(std::numeric_limits<float>::denorm_min() * 2), std::numeric_limits<float>::denorm_min());
  }
  EXPECT_EQ(halfOf(least), 0.0F);
  EXPECT_EQ(_mm_getcsr() & (kFlushToZero | kDenormalsAreZero), kFlushToZero | kDenormalsAreZero);
}

TEST_F(FloatEnvironment, TrapsOfTheCallerDoNotFireInside) {
  constexpr unsigned kMaskDivide = 0x200;
  _mm_setcsr(_mm_getcsr() & ~kMaskDivide);
  {
    const DefaultFloatEnvironment environment;
    const volatile float one = 1, zero = 0;
    EXPECT_EQ(one / zero, std::numeric_limits<float>::infinity());
  }
  EXPECT_EQ(_mm_getcsr() & kMaskDivide, 0U);
}
#endif

TEST_F(FloatEnvironment, LeavesADefaultCallerAlone) {
  const DefaultFloatEnvironment environment;
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
}

}  // namespace
}  // namespace tutti::exec::host::float_environment_test
