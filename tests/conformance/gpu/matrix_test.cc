// The conformance matrix on GPUs: every algorithm on every protocol that carries it out, ranks as threads with a GPU each, bit for bit. By
// default a sample by fixed seed; TUTTI_TEST_SAMPLE sets its size, TUTTI_TEST_RANKS the rank counts ("5" or "1-8"), TUTTI_TEST_TOPOLOGY the
// machine (played_machine.h).
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "conformance/gpu/fake_gpus.h"
#include "conformance/gpu/played_machine.h"
#include "conformance/run_case.h"

namespace tutti::conformance::matrix_test {
namespace {

constexpr uint64_t kSeed = 20261122;
constexpr const char* kProtocols[] = {"LL", "LL128", "Simple"};

int sampleSize() {
  const char* text = std::getenv("TUTTI_TEST_SAMPLE");
  return text == nullptr ? 2 : std::atoi(text);
}

bool isWanted(int ranks) {
  const char* text = std::getenv("TUTTI_TEST_RANKS");
  if (text == nullptr) return true;
  const std::string range = text;
  const size_t dash = range.find('-');
  return ranks >= std::atoi(range.c_str()) && ranks <= std::atoi(range.c_str() + (dash == std::string::npos ? 0 : dash + 1));
}

/// What the planner says to a call of the column; "error: …" where it cannot be.
std::string explained(const Column& column, int ranks, ncclComm_t comm) {
  const Case c = caseAt(column, ranks, 0);
  return explainAlgorithm(comm, explainName(column.kind), 1000, static_cast<ncclDataType_t>(c.type), ncclSum, 0);
}

class GpuMatrix : public testing::TestWithParam<int> {};

TEST_P(GpuMatrix, EveryResultIsRightBitForBit) {
  const int ranks = GetParam();
  if (!isWanted(ranks)) GTEST_SKIP() << "not in TUTTI_TEST_RANKS";
  const char* const topology = std::getenv("TUTTI_TEST_TOPOLOGY");
  const PlayedMachine played(topology == nullptr ? "" : topology);
  FakeGpus gpus(ranks);
  std::map<std::string, int> protocolsOf;  // by algorithm, with its collective
  std::atomic<int> failures = 0;
  int cases = 0;
  for (const Column& column : columns()) {
    for (const char* const protocol : kProtocols) {
      const ScopedEnv proto("NCCL_PROTO", protocol);
      RankThreads threads(ranks, std::string(column.force), [&](int rank) { return std::make_shared<UseGpu>(gpus, rank); });
      ASSERT_TRUE(threads.created());
      std::string first;
      threads.run([&](int rank, ncclComm_t comm) {
        if (rank == 0) first = explained(column, ranks, comm);
      });
      if (first.starts_with("error: ")) continue;
      ++protocolsOf[column.force];
      const std::vector<Case> sampled = sampleCases(column, ranks, sampleSize(), mix(kSeed, hashBytes(protocol, 2)));
      threads.run([&](int rank, ncclComm_t comm) {
        for (const Case& c : sampled) {
          if (rank == 0) threads.announce(describe(c) + " " + protocol);
          const std::string problem = runCaseAlone(c, rank, comm, true, [&] { synchronize(gpus); });
          if (!problem.empty() && ++failures < 20)
            ADD_FAILURE() << "rank " << rank << ": " << problem << "\n  in: " << describe(c) << " " << protocol;
        }
      });
      cases += static_cast<int>(sampled.size());
    }
  }
  RecordProperty("cases", std::to_string(cases));
  EXPECT_EQ(failures, 0) << "of " << cases << " cases";
  if (ranks == 1) return;  // one alone has no windows
  for (const Column& column : columns())
    EXPECT_TRUE(!column.traits.isForDevices() || protocolsOf[column.force] > 0) << column.force << " runs on no protocol";
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuMatrix, testing::Range(1, 9));

}  // namespace
}  // namespace tutti::conformance::matrix_test
