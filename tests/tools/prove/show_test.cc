#include "prove/show.h"

#include <gtest/gtest.h>

namespace tutti::tool::show_test {
namespace {

TEST(Show, AlignsTheChosenColumns) {
  const std::string table = "| a | bb | c |\n|---|---|---:|\n| 1–3 | x | 5 |\n| 1 | yyy | 66 |\n";
  EXPECT_EQ(alignColumns(table, {"a", "c"}), "a    c\n1–3  5\n1    66\n");
  EXPECT_EQ(alignColumns(table, {"bb", "missing"}), "bb\nx\nyyy\n");
  EXPECT_EQ(alignColumns("", {"a"}), "");
}

}  // namespace
}  // namespace tutti::tool::show_test
