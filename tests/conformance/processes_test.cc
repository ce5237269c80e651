// A sample of the matrix with ranks as processes: the same references, bit for bit, as for ranks that are threads.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "conformance/run_case.h"
#include "faults/hosts.h"
#include "faults/process_ranks.h"

namespace tutti::conformance::processes_test {
namespace {

constexpr uint64_t kSeed = 20261121;
using faults::ProcessRanks;

int sampleSize() {
  const char* text = std::getenv("TUTTI_TEST_SAMPLE");
  return text == nullptr ? 6 : std::atoi(text);
}

/// Whether so many ranks are told that they are on several hosts: TUTTI_NODE_RANKS on each.
bool spansHosts(int ranks) {
  if (std::getenv("TUTTI_TEST_HOSTS") == nullptr || nodeRanks() == 0) return false;
  return nodeRanks() < ranks && ranks % nodeRanks() == 0;
}

/// On several hosts nothing runs that needs memory that all see.
bool isWanted(const Column& column, int ranks) { return !spansHosts(ranks) || !column.traits.needsSharedMemory(); }

/// All columns, one communicator each. Buffers come from ncclMemAlloc in every second case, in turns on even and on odd ranks.
void runMatrix(ProcessRanks::Self& self) {
  const int ranks = self.count();
  if (spansHosts(ranks)) faults::playHost(self.index() / nodeRanks());
  int64_t cases = 0;
  for (const Column& column : columns()) {
    if (!isWanted(column, ranks)) continue;
    const ScopedEnv algorithm("TUTTI_ALGO", std::string(column.force));
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRank(&comm, ranks, self.freshId(), self.index()), ncclSuccess) << ncclGetLastError(nullptr);
    for (const Case& c : sampleCases(column, ranks, sampleSize(), kSeed)) {
      const std::string problem = runCaseAlone(c, self.index(), comm, (cases++ + self.index()) % 2 == 0);
      ASSERT_EQ(problem, "") << "rank " << self.index() << " in: " << describe(c);
    }
    ASSERT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
  self.note(0, cases);
}

class Processes : public testing::TestWithParam<int> {};

TEST_P(Processes, EveryResultIsRightBitForBit) {
  ProcessRanks children(GetParam(), runMatrix);
  children.expectAllWell({}, 120);
  int wanted = 0;
  for (const Column& column : columns()) wanted += isWanted(column, GetParam()) ? 1 : 0;
  EXPECT_EQ(children.number(0, 0), static_cast<int64_t>(wanted) * sampleSize());
}

INSTANTIATE_TEST_SUITE_P(Ranks, Processes, testing::Values(2, 3, 4, 6));

}  // namespace
}  // namespace tutti::conformance::processes_test
