// The conformance matrix. By default a sample by fixed seed of every column and rank count; TUTTI_TEST_FULL=1 runs every case of
// the rank counts in TUTTI_TEST_RANKS ("5" or "1-17"). TUTTI_TEST_SAMPLE sets the size of a column's sample.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "conformance/run_case.h"

namespace tutti::conformance {
namespace {

constexpr int kMaxRanks = 17;
constexpr uint64_t kSeed = 20260101;

int envInt(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

bool isWanted(int ranks) {
  const char* text = std::getenv("TUTTI_TEST_RANKS");
  if (text == nullptr) return true;
  const std::string range = text;
  const size_t dash = range.find('-');
  const int low = std::atoi(range.c_str());
  const int high = dash == std::string::npos ? low : std::atoi(range.c_str() + dash + 1);
  return ranks >= low && ranks <= high;
}

class Matrix : public testing::TestWithParam<int> {};

TEST_P(Matrix, EveryResultIsRightBitForBit) {
  const int ranks = GetParam();
  if (!isWanted(ranks)) GTEST_SKIP() << "not in TUTTI_TEST_RANKS";
  const bool full = envInt("TUTTI_TEST_FULL", 0) != 0;
  const int sample = envInt("TUTTI_TEST_SAMPLE", 24);
  uint64_t cases = 0;
  for (const Column& column : columns()) {
    RankThreads threads(ranks, std::string(column.force));
    ASSERT_TRUE(threads.created());
    CaseRunner runner(threads);
    const std::vector<Case> sampled = full ? std::vector<Case>() : sampleCases(column, ranks, sample, kSeed);
    const uint64_t count = full ? caseCount(column, ranks) : sampled.size();
    threads.run([&](int rank, ncclComm_t comm) {
      for (uint64_t i = 0; i < count; ++i) runner.runCase(full ? caseAt(column, ranks, i) : sampled[i], rank, comm);
    });
    EXPECT_EQ(runner.failures(), 0) << kindName(column.kind) << " " << column.algorithm << ": of " << count << " cases";
    cases += count;
  }
  RecordProperty("cases", std::to_string(cases));
}

INSTANTIATE_TEST_SUITE_P(Ranks, Matrix, testing::Range(1, kMaxRanks + 1));

// The generator itself: every value of every axis comes up, and a sample is the same each time.
TEST(MatrixAxes, SamplesAreRepeatableAndCoverEveryTypeAndOperation) {
  const std::vector<Case> first = sampleCases(columns()[0], 5, 36, kSeed);
  const std::vector<Case> again = sampleCases(columns()[0], 5, 36, kSeed);
  uint32_t types = 0;
  uint32_t operations = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(describe(first[i]), describe(again[i]));
    types |= 1u << static_cast<int>(first[i].type);
    operations |= 1u << first[i].operation;
  }
  EXPECT_EQ(types, (1u << kNumDataTypes) - 1);
  EXPECT_EQ(operations, (1u << kNumOperations) - 1);
}

// A reference that accepts everything would prove nothing: one bit off in the result of a max, or a few units in the last place
// of a sum, must be refused.
TEST(MatrixReference, RefusesWrongResults) {
  Case c;
  c.ranks = 3;
  c.count = 9;
  c.algorithm = "ring";
  c.seed = 7;
  for (const int operation : {0, 1, 2, 3, kAvg, kPreMulHost}) {
    c.operation = operation;
    for (int t = 0; t < kNumDataTypes; ++t) {
      c.type = static_cast<DataType>(t);
      std::vector<Bytes> inputs;
      for (int r = 0; r < c.ranks; ++r) inputs.push_back(makeInput(c, r));
      Bytes output = expectedOutput(c, inputs)[0];
      EXPECT_EQ(checkPrecise(c, inputs, 0, output), "") << describe(c);
      // The sign, or the top bit of an integer, of the last element.
      output.back() ^= std::byte{0x80};
      EXPECT_NE(checkPrecise(c, inputs, 0, output), "") << describe(c);
      EXPECT_NE(firstDifference(c, output.data(), expectedOutput(c, inputs)[0]), "");
    }
  }
}

}  // namespace
}  // namespace tutti::conformance
