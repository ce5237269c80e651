#include "bench/pattern.h"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::bench::pattern_test {
namespace {

TEST(Table, RepeatsAndWraps) {
  Table table(DataType::U32, 5);
  for (uint64_t i = 0; i < 5; ++i) table.set(i, Expected{100 + i, 0, 0});
  std::vector<uint32_t> data(13);
  table.fill(data.data(), data.size(), 8);
  for (uint64_t i = 0; i < data.size(); ++i) EXPECT_EQ(data[i], 100 + (8 + i) % 5);
  EXPECT_EQ(table.compare(data.data(), data.size(), 8).wrong, 0u);
  EXPECT_EQ(table.compare(data.data(), data.size(), 9).wrong, 13u);
}

TEST(Table, CountsEveryMismatchAndNamesTheFirst) {
  Table table(DataType::I64, 7);
  for (uint64_t i = 0; i < 7; ++i) table.set(i, Expected{i, 0, 0});
  std::vector<int64_t> data(20);
  table.fill(data.data(), data.size(), 0);
  data[6] = 99;
  data[19] = 99;
  const Table::Mismatch mismatch = table.compare(data.data(), data.size(), 0);
  EXPECT_EQ(mismatch.wrong, 2u);
  EXPECT_EQ(mismatch.index, 6u);
  EXPECT_EQ(mismatch.text, "is 0x0000000000000063, should be 0x0000000000000006");
}

TEST(Pattern, ConsecutivePatternsHoldOtherValuesWithAnotherPeriod) {
  const Pattern first(DataType::F32, RedOp::Sum, 2, 0);
  const Pattern second(DataType::F32, RedOp::Sum, 2, 1);
  std::vector<float> data(8191);
  first.reduced().fill(data.data(), data.size(), 0);
  EXPECT_EQ(first.reduced().compare(data.data(), data.size(), 0).wrong, 0u);
  EXPECT_EQ(first.reduced().compare(data.data(), data.size(), kPeriods[0]).wrong, 0u);
  EXPECT_GT(second.reduced().compare(data.data(), data.size(), 0).wrong, 8000u);
  EXPECT_GT(first.input(1).compare(data.data(), data.size(), 0).wrong, 4000u);
}

}  // namespace
}  // namespace tutti::bench::pattern_test
