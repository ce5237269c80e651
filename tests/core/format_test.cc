#include "core/format.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string_view>

namespace tutti::format_test {
namespace {

TEST(Format, PutsArgumentsInTheirPlaces) {
  EXPECT_EQ(format("rank {} of {}", 3, 8), "rank 3 of 8");
  EXPECT_EQ(format("{1} before {0}", "b", std::string("a")), "a before b");
  EXPECT_EQ(format("{{}} {}", std::string_view("abc", 2)), "{} ab");
  EXPECT_EQ(format(""), "");
}

TEST(Format, NumbersKeepTheirValue) {
  EXPECT_EQ(format("{} {}", std::numeric_limits<int64_t>::min(), std::numeric_limits<uint64_t>::max()),
            "-9223372036854775808 18446744073709551615");
  EXPECT_EQ(format("{:.3f} {:>6} {:<4}| {:#x}", 1.0 / 3, 42, 7, 255), "0.333     42 7   | 0xff");
  EXPECT_EQ(format("{}", true), "true");
}

TEST(Format, TextMayBeLong) {
  const std::string part(100000, 'x');
  const std::string text = format("<{}{}>", part, part);
  EXPECT_EQ(text.size(), 200002U);
  EXPECT_EQ(text.back(), '>');
}

}  // namespace
}  // namespace tutti::format_test
