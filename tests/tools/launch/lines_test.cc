#include "launch/lines.h"

#include <gtest/gtest.h>

namespace tutti::launch::lines_test {
namespace {

std::string cut(const std::vector<std::string>& parts, const char* prefix = "> ") {
  LineCutter cutter(prefix);
  std::string out;
  for (const std::string& part : parts) cutter.feed(part, out);
  cutter.finish(out);
  return out;
}

TEST(Lines, PrefixesEachLine) {
  EXPECT_EQ(cut({"a\nb\n"}), "> a\n> b\n");
  EXPECT_EQ(cut({"a", "b", "\nc\n"}), "> ab\n> c\n");
  EXPECT_EQ(cut({"\n\n"}), "> \n> \n");
  EXPECT_EQ(cut({std::string("a\0b\n", 4)}), std::string("> a\0b\n", 6));
}

TEST(Lines, EndsTheLastLine) {
  EXPECT_EQ(cut({"a"}), "> a\n");
  EXPECT_EQ(cut({}), "");
}

TEST(Lines, NothingBeforeALineIsWhole) {
  LineCutter cutter("");
  std::string out;
  cutter.feed("half", out);
  EXPECT_EQ(out, "");
  cutter.feed(" a line\nand", out);
  EXPECT_EQ(out, "half a line\n");
}

TEST(Lines, EndlessLinesAreCut) {
  const std::string text(2 * kLongestLine + 5, 'x');
  const std::string full(kLongestLine, 'x');
  EXPECT_EQ(cut({text}, ""), full + "\n" + full + "\nxxxxx\n");
  EXPECT_EQ(cut({full + "\n"}, ""), full + "\n");
}

TEST(Lines, PrefixesAlign) {
  EXPECT_EQ(rankPrefix(0, 1), "[0] ");
  EXPECT_EQ(rankPrefix(3, 10), "[3] ");
  EXPECT_EQ(rankPrefix(3, 11), "[ 3] ");
  EXPECT_EQ(rankPrefix(10, 11), "[10] ");
}

}  // namespace
}  // namespace tutti::launch::lines_test
