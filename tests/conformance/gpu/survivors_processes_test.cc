// Processes with GPUs of which one is killed, or never comes: the others revoke or shrink, and go on without it.
#include <string>

#include "conformance/gpu/faults.h"

namespace tutti::conformance::survivors_processes_test {
namespace {

using driver::cuda::Error;
using driver::cuda::Graph;
using faults::kSlow;
using faults::ProcessRanks;
using faults::Stopwatch;

constexpr int kRanks = 3;
constexpr int kLost = 1;
constexpr size_t kCount = 50'000;

struct Way {
  const char* name;
  bool revokes;
  int flags;
  bool isGraph;  ///< it is a graph that waits
};

constexpr Way kWays[] = {
    {"RevokeThenShrink", true, NCCL_SHRINK_DEFAULT, false},
    {"ShrinkThatAborts", false, NCCL_SHRINK_ABORT, false},
    {"ShrinkThatAbortsGraphs", false, NCCL_SHRINK_ABORT, true},
};

/// The right sum of those who are left.
void goOn(FakeGpus& gpus, const Way& way, int index, ncclComm_t comm) {
  int lost = kLost;
  ncclComm_t child = nullptr;
  ASSERT_EQ(ncclCommShrink(comm, &lost, 1, &child, nullptr, way.flags), ncclSuccess) << ncclGetLastError(comm);
  const GpuInts data(kCount);
  for (size_t i = 0; i < kCount; ++i) data.data()[i] = index + static_cast<int>(i % 100);
  for (int k = 0; k < 2; ++k) {
    ASSERT_EQ(sum(data, kCount, child), ncclSuccess) << ncclGetLastError(child);
    synchronize(gpus);
    for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(data.data()[i], (k + 1) * (2 + 2 * static_cast<int>(i % 100))) << "sum " << k;
  }
  EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
}

/// Until the test has killed it, or for good.
void live(ProcessRanks::Self& self, const Way& way, bool isKilled) {
  FakeGpus gpus(kRanks);
  {
    const UseGpu use(gpus, self.index());
    const ncclComm_t comm = faults::joinAll(self);
    const driver::cuda::Stream stream = gpus.makeStream();
    Graph graph = nullptr;
    {
      const GpuInts data(kCount);
      ASSERT_EQ(sum(data, kCount, comm, stream), ncclSuccess) << ncclGetLastError(comm);
      ASSERT_EQ(gpus.driver().beginCapture(stream), Error::Success);
      ASSERT_EQ(sum(data, kCount, comm, stream), ncclSuccess) << ncclGetLastError(comm);
      ASSERT_EQ(gpus.driver().endCapture(stream, &graph), Error::Success);
      synchronize(gpus, stream);
      self.meet(1);
      if (self.index() == kLost) {
        self.awaitAllowed(isKilled ? 99 : 2);
      } else {
        if (way.isGraph) {
          ASSERT_EQ(gpus.driver().launchGraph(graph, stream), Error::Success);
        } else {
          ASSERT_EQ(sum(data, kCount, comm, stream), ncclSuccess) << ncclGetLastError(comm);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        EXPECT_EQ(gpus.driver().streamQuery(stream), Error::NotReady);
        self.reach(2);
        self.awaitAllowed(1);
        const Stopwatch watch;
        if (isKilled) {
          EXPECT_EQ(awaitError(comm, 4 * kSlow), ncclRemoteError);
          EXPECT_NE(std::string(ncclGetLastError(comm)).find("rank 1"), std::string::npos) << ncclGetLastError(comm);
        }
        if (way.revokes) {
          EXPECT_EQ(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), ncclSuccess) << ncclGetLastError(comm);
        }
        goOn(gpus, way, self.index(), comm);
        EXPECT_LT(watch.seconds(), 4 * kSlow);
        synchronize(gpus, stream);
        self.reach(3);
      }
      if (!isKilled && self.index() == kLost) {
        EXPECT_EQ(awaitError(comm, 4 * kSlow), ncclRemoteError);
        EXPECT_EQ(sum(data, kCount, comm, stream), ncclRemoteError) << "it comes too late";
      }
    }
    EXPECT_EQ(gpus.driver().destroyGraph(graph), Error::Success);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess) << ncclGetLastError(nullptr);
    EXPECT_EQ(gpus.driver().streamDestroy(stream), Error::Success);
  }
  if (isKilled)
    self.meet(4, {kLost});
  else
    self.meet(4);
}

class GpuSurvivorProcesses : public testing::TestWithParam<Way> {};

TEST_P(GpuSurvivorProcesses, OfOneThatIsKilledGoOn) {
  ProcessRanks children(kRanks, [](ProcessRanks::Self& self) { live(self, GetParam(), true); });
  ASSERT_TRUE(children.awaitStageOfAll(2, {kLost}));
  children.kill(kLost);
  children.allow(1);
  children.expectAllWell({kLost}, 20);
}

TEST_P(GpuSurvivorProcesses, OfOneThatComesTooLateGoOn) {
  ProcessRanks children(kRanks, [](ProcessRanks::Self& self) { live(self, GetParam(), false); });
  ASSERT_TRUE(children.awaitStageOfAll(2, {kLost}));
  children.allow(1);
  ASSERT_TRUE(children.awaitStageOfAll(3, {kLost}));
  children.allow(2);
  children.expectAllWell({}, 20);
}

INSTANTIATE_TEST_SUITE_P(Ways, GpuSurvivorProcesses, testing::ValuesIn(kWays), [](const auto& param) { return param.param.name; });

/// Another process aborts its init in the middle, or never comes.
void initThatIsAborted(ProcessRanks::Self& self) {
  FakeGpus gpus(kRanks);
  {
    const UseGpu use(gpus, self.index());
    const ncclUniqueId id = self.id();
    if (self.index() == kLost) self.awaitAllowed(1);
    if (self.index() == kLost) return;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRankConfig(&comm, kRanks, id, self.index(), &config), ncclInProgress) << ncclGetLastError(nullptr);
    ncclResult_t state = ncclInProgress;
    for (const Stopwatch watch; watch.seconds() < 0.1;) {
      EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
      ASSERT_EQ(state, ncclInProgress) << ncclGetLastError(comm);
    }
    self.meet(1, {kLost});
    if (self.index() == 2) {
      EXPECT_EQ(awaitError(comm, 5 * kSlow), ncclRemoteError);
    }
    faults::abortPromptly(comm);
    self.meet(2, {kLost});
  }
}

TEST(GpuInitProcesses, AnAbortWhileAPeerNeverComesFreesTheOther) {
  ProcessRanks children(kRanks, initThatIsAborted);
  ASSERT_TRUE(children.awaitStageOfAll(2, {kLost}));
  children.allow(1);
  children.expectAllWell({}, 20);
}

}  // namespace
}  // namespace tutti::conformance::survivors_processes_test
