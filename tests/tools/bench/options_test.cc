#include "bench/options.h"

#include <gtest/gtest.h>

namespace tutti::bench::options_test {
namespace {

Options optionsFor(const char* operation) {
  Options options;
  options.operation = *findOperation(operation);
  return options;
}

TEST(Options, CountsDoubleFromEightBytesTo64MiB) {
  const std::vector<uint64_t> counts = countsOf(optionsFor("all_reduce"), DataType::F32);
  ASSERT_EQ(counts.size(), 24u);
  EXPECT_EQ(counts.front(), 2u);
  EXPECT_EQ(counts.back(), uint64_t{16} << 20);
}

TEST(Options, CountsAreWholeBlocksOfAtLeastOneElement) {
  Options options = optionsFor("all_gather");
  options.ranks = 5;
  options.maxBytes = 64;
  // 8 and 16 bytes hold no element for each of 5 ranks: one row of 20 bytes instead of two.
  EXPECT_EQ(countsOf(options, DataType::F32), (std::vector<uint64_t>{1, 3}));
}

TEST(Options, CountsGrowByStepsAndFactors) {
  Options options = optionsFor("broadcast");
  options.minBytes = 100;
  options.maxBytes = 400;
  options.stepBytes = 100;
  EXPECT_EQ(countsOf(options, DataType::U8), (std::vector<uint64_t>{100, 200, 300, 400}));
  options.stepBytes = 0;
  options.stepFactor = 1.5;
  EXPECT_EQ(countsOf(options, DataType::U8), (std::vector<uint64_t>{100, 150, 225, 338}));
  options.minBytes = options.maxBytes = 0;
  EXPECT_EQ(countsOf(options, DataType::U8), (std::vector<uint64_t>{0}));
}

TEST(Options, NamesAndTheirErrors) {
  EXPECT_EQ(parseTypes("all")->size(), 12u);
  EXPECT_EQ(parseTypes("half").value(), (std::vector<DataType>{DataType::F16}));
  EXPECT_NE(parseTypes("fp16").error().text().find("bfloat16"), std::string::npos);
  EXPECT_EQ(parseRedOps("all")->size(), 6u);
  EXPECT_NE(parseRedOps("xor").error().text().find("mulsum"), std::string::npos);
  EXPECT_EQ(parseRoots("all", 3).value(), (std::vector<int>{0, 1, 2}));
  EXPECT_FALSE(parseRoots("3", 3));
  EXPECT_EQ(findOperation("all-reduce").value()->op, Op::AllReduce);
  EXPECT_NE(findOperation("allreduce").error().text().find("sendrecv"), std::string::npos);
}

TEST(Options, BusFactors) {
  EXPECT_DOUBLE_EQ((*findOperation("all_reduce"))->busFactor(4), 1.5);
  for (const char* name : {"all_gather", "reduce_scatter", "alltoall", "gather", "scatter"}) {
    EXPECT_DOUBLE_EQ((*findOperation(name))->busFactor(4), 0.75) << name;
  }
  for (const char* name : {"broadcast", "reduce", "sendrecv"}) EXPECT_DOUBLE_EQ((*findOperation(name))->busFactor(4), 1) << name;
  EXPECT_DOUBLE_EQ((*findOperation("all_reduce"))->busFactor(1), 0);
}

}  // namespace
}  // namespace tutti::bench::options_test
