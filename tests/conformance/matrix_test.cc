// The conformance matrix. By default a sample by fixed seed of every column and rank count; TUTTI_TEST_FULL=1 runs every case of
// the rank counts in TUTTI_TEST_RANKS ("5" or "1-17"). TUTTI_TEST_SAMPLE sets the size of a column's sample.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "conformance/run_case.h"
#include "connect/channels.h"
#include "core/format.h"

namespace tutti::conformance::matrix_test {
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

/// TUTTI_TEST_RINGS=N: NCCL_GRAPH_FILE states N rings and chains, drawn by a fixed seed, so that channels differ.
class StatedRings {
 public:
  explicit StatedRings(int ranks) {
    const int rings = envInt("TUTTI_TEST_RINGS", 0);
    if (rings == 0) return;
    node_.rings = draw(ranks, rings, 1);
    node_.trees = draw(ranks, rings, 2);
    for (int r = 0; r < ranks; ++r) node_.ranks.push_back(r);
    file_ = testing::TempDir() + "tutti_rings_" + std::to_string(getpid()) + ".xml";
    std::ofstream(file_) << "<graphs version=\"1\">" << graph(0, 4, node_.rings) << graph(1, 1, node_.trees) << "</graphs>";
    use_ = std::make_unique<ScopedEnv>("NCCL_GRAPH_FILE", file_);
    natural_ = layoutOf();
    layoutOf() = [node = node_](int) {
      const auto channels = connect::connectNodes({&node, 1}, {});
      EXPECT_TRUE(channels) << channels.error().text();
      return connect::Layout::ofChannels(*channels, {&node, 1});
    };
    // Of so many permutations of four or more ranks some are no rotations of others.
    EXPECT_TRUE(ranks < 4 || layoutOf()(ranks).tracks() > 1);
  }
  ~StatedRings() {
    if (file_.empty()) return;
    layoutOf() = natural_;
    std::remove(file_.c_str());
  }
  StatedRings(const StatedRings&) = delete;
  StatedRings& operator=(const StatedRings&) = delete;

 private:
  using Orders = std::vector<std::vector<int32_t>>;
  static Orders draw(int ranks, int count, uint64_t seed) {
    Random random(mix(kSeed, seed));
    Orders orders;
    for (int i = 0; i < count; ++i) {
      std::vector<int32_t>& order = orders.emplace_back();
      for (int r = 0; r < ranks; ++r)
        order.insert(order.begin() + static_cast<std::ptrdiff_t>(random.below(static_cast<uint64_t>(r) + 1)), r);
    }
    return orders;
  }
  static std::string graph(int id, int pattern, const Orders& orders) {
    std::string text = format(R"(<graph id="{}" pattern="{}" crossnic="0" nchannels="{}" speedintra="1" speedinter="1" typeintra="NVL")",
                              id, pattern, orders.size());
    text += R"( typeinter="PIX" samechannels="0">)";
    for (const auto& order : orders) {
      text += "<channel>";
      for (const int32_t rank : order) text += format(R"(<gpu dev="{:x}"/>)", rank);
      text += "</channel>";
    }
    return text + "</graph>";
  }

  connect::NodeGraphs node_;
  std::string file_;
  std::unique_ptr<ScopedEnv> use_;
  LayoutOf natural_;
};

class Matrix : public testing::TestWithParam<int> {};

TEST_P(Matrix, EveryResultIsRightBitForBit) {
  const int ranks = GetParam();
  if (!isWanted(ranks)) GTEST_SKIP() << "not in TUTTI_TEST_RANKS";
  const bool full = envInt("TUTTI_TEST_FULL", 0) != 0;
  const int sample = envInt("TUTTI_TEST_SAMPLE", 24);
  uint64_t cases = 0;
  const StatedRings stated(ranks);
  for (const Column& column : columns()) {
    if (!column.runsOn(ranks)) continue;
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
      std::vector<Contents> inputs;
      for (int r = 0; r < c.ranks; ++r) inputs.push_back(makeInput(c, r));
      Contents output = expectedOutput(c, inputs)[0];
      EXPECT_EQ(checkPrecise(c, inputs, 0, output), "") << describe(c);
      // The sign, or the top bit of an integer, of the last element.
      output.back() ^= std::byte{0x80};
      EXPECT_NE(checkPrecise(c, inputs, 0, output), "") << describe(c);
      EXPECT_NE(firstDifference(c, output.data(), expectedOutput(c, inputs)[0]), "");
    }
  }
}

}  // namespace
}  // namespace tutti::conformance::matrix_test
