#include "bench/units.h"

#include <gtest/gtest.h>

namespace tutti::bench::units_test {
namespace {

TEST(Units, ParsesSizes) {
  EXPECT_EQ(parseBytes("8").value(), 8u);
  EXPECT_EQ(parseBytes("64K").value(), 65536u);
  EXPECT_EQ(parseBytes("1.5m").value(), 1572864u);
  EXPECT_EQ(parseBytes("2GiB").value(), uint64_t{2} << 30);
  EXPECT_EQ(parseBytes("4MB").value(), uint64_t{4} << 20);
  EXPECT_EQ(parseBytes("0").value(), 0u);
}

TEST(Units, RefusesWhatIsNoSize) {
  for (const char* text : {"", "K", "-8", "8Q", "8 K", "1e3", "nan", "inf", "0.3", "9999999T", "8KiBs", "0x10"}) {
    EXPECT_FALSE(parseBytes(text)) << text;
  }
  EXPECT_NE(parseBytes("8Q").error().text().find("'8Q'"), std::string::npos);
}

TEST(Units, FormatsSizes) {
  EXPECT_EQ(formatBytes(0), "0 B");
  EXPECT_EQ(formatBytes(1023), "1023 B");
  EXPECT_EQ(formatBytes(65536), "64 KiB");
  EXPECT_EQ(formatBytes(1500000), "1.43 MiB");
  EXPECT_EQ(formatBytes(uint64_t{3} << 40), "3 TiB");
}

TEST(Units, FormatsNumbers) {
  EXPECT_EQ(formatNumber(0), "0");
  EXPECT_EQ(formatNumber(0.00066), "0.0007");
  EXPECT_EQ(formatNumber(0.5), "0.500");
  EXPECT_EQ(formatNumber(12.345), "12.35");
  EXPECT_EQ(formatNumber(123456.7), "123457");
}

TEST(Units, ParsesLists) {
  EXPECT_EQ(parseList("3", 1, 9).value(), (std::vector<int>{3}));
  EXPECT_EQ(parseList("2-4,8", 1, 9).value(), (std::vector<int>{2, 3, 4, 8}));
  for (const char* text : {"", "a", "1,", "4-2", "0", "10", "1-10", "2-", "-3"}) EXPECT_FALSE(parseList(text, 1, 9)) << text;
}

}  // namespace
}  // namespace tutti::bench::units_test
