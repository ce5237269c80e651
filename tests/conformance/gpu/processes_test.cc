// A sample of the matrix on GPUs with ranks as processes, which reach each other's memory through the driver: by descriptors and, without
// virtual memory, by the older handles.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "conformance/gpu/faults.h"
#include "conformance/run_case.h"
#include "faults/process_ranks.h"

namespace tutti::conformance::processes_test {
namespace {

using faults::ProcessRanks;

constexpr uint64_t kSeed = 20261123;

int sampleSize() {
  const char* text = std::getenv("TUTTI_TEST_SAMPLE");
  return text == nullptr ? 2 : std::atoi(text);
}

void runMatrix(ProcessRanks::Self& self) {
  const int ranks = self.count();
  FakeGpus gpus(ranks);
  const UseGpu use(gpus, self.index());
  int64_t cases = 0;
  int turn = 0;
  for (const Column& column : columns()) {
    constexpr const char* kProtocols[] = {"Simple", "LL", "LL128", ""};
    const ScopedEnv protocol("NCCL_PROTO", kProtocols[static_cast<size_t>(turn++) % 4]);
    const ScopedEnv algorithm("TUTTI_ALGO", std::string(column.force));
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRank(&comm, ranks, self.freshId(), self.index()), ncclSuccess) << ncclGetLastError(nullptr);
    const std::string explained = explainAlgorithm(comm, explainName(column.kind), 1000, ncclFloat, ncclSum, 0);
    if (!explained.starts_with("error: ")) {
      for (const Case& c : sampleCases(column, ranks, sampleSize(), kSeed)) {
        const std::string problem = runCaseAlone(c, self.index(), comm, true, [&] { synchronize(gpus); });
        ASSERT_EQ(problem, "") << "rank " << self.index() << " in: " << describe(c);
        ++cases;
      }
    }
    ASSERT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
  self.note(0, cases);
  self.meet(1);  // what peers may still touch is kept
}

class GpuProcesses : public testing::TestWithParam<int> {};

TEST_P(GpuProcesses, EveryResultIsRightBitForBit) {
  ProcessRanks children(GetParam(), runMatrix);
  children.expectAllWell({}, 120);
  EXPECT_GT(children.number(0, 0), 15);
}

TEST_P(GpuProcesses, AlsoWithoutVirtualMemory) {
  const ScopedEnv plain("NCCL_CUMEM_ENABLE", "0");
  ProcessRanks children(GetParam(), runMatrix);
  children.expectAllWell({}, 120);
  EXPECT_GT(children.number(0, 0), 15);
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuProcesses, testing::Values(2, 3));

/// Rank by rank in processes of their own, on machines that all of them see alike.
void sumInProcesses(ProcessRanks::Self& self, const driver::cuda::FakeOptions& options) {
  FakeGpus gpus(options);
  const UseGpu use(gpus, self.index());
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, self.count(), self.freshId(), self.index()), ncclSuccess) << ncclGetLastError(nullptr);
  for (const size_t count : {size_t{3}, size_t{60'001}, size_t{400'000}}) {
    const GpuInts data(count);
    ASSERT_EQ(sum(data, count, comm), ncclSuccess) << ncclGetLastError(comm);
    synchronize(gpus);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(data.data()[i], self.count());
  }
  self.note(0, static_cast<int64_t>(usage(comm).first));
  ASSERT_EQ(ncclCommDestroy(comm), ncclSuccess);
  self.meet(1);  // what peers may still touch is kept
}

TEST(GpuPathsProcesses, ReachEachOtherThroughTheHost) {
  const ScopedEnv enabled("NCCL_P2P_DISABLE", "0");  // whatever variant of this program runs
  for (const driver::cuda::FakeOptions& options :
       {driver::cuda::FakeOptions{.devices = 3, .cut = {{0, 1}}}, driver::cuda::FakeOptions{.devices = 3, .cut = {{0, 1}, {0, 2}, {1, 2}}},
        driver::cuda::FakeOptions{.devices = 3, .virtualMemory = false, .cut = {{1, 2}}},
        driver::cuda::FakeOptions{.devices = 3, .lossy = {{0, 1}}}}) {
    ProcessRanks children(3, [&](ProcessRanks::Self& self) { sumInProcesses(self, options); });
    children.expectAllWell({}, 60);
    EXPECT_GT(children.number(1, 0), 0);
    const bool isThird = std::ranges::any_of(options.cut, [](const auto& pair) { return pair.second == 2; });
    EXPECT_EQ(children.number(2, 0) > 0, isThird);
  }
}

}  // namespace
}  // namespace tutti::conformance::processes_test
