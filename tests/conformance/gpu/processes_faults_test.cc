// Processes with GPUs that die while others wait for them, in kernels or for their memory.
#include <cstdlib>
#include <string>

#include "conformance/gpu/faults.h"

namespace tutti::conformance::processes_faults_test {
namespace {

using faults::kSlow;
using faults::Stopwatch;

TEST(GpuProcess, AKilledOneEndsTheOthersWaits) {
  for (const bool isConnected : {true, false}) {
    faults::ProcessRanks children(3, [isConnected](faults::ProcessRanks::Self& self) {
      FakeGpus gpus(3);
      {
        const UseGpu use(gpus, self.index());
        ncclComm_t comm = faults::joinAll(self);
        const GpuInts data(100'000);
        if (isConnected) {
          ASSERT_EQ(sum(data, 100'000, comm), ncclSuccess) << ncclGetLastError(comm);
          synchronize(gpus);
        }
        if (self.index() == 2) {
          self.reach(1);
          self.awaitAllowed(9);
        }
        self.reach(1);
        const Stopwatch watch;
        const ncclResult_t called = sum(data, 100'000, comm);
        EXPECT_EQ(called, isConnected ? ncclSuccess : ncclRemoteError) << ncclGetLastError(comm);
        const ncclResult_t heard = awaitError(comm, 4 * kSlow);
        EXPECT_EQ(heard, ncclRemoteError);
        if (heard == ncclSuccess) std::abort();  // the kernel would wait for ever
        synchronize(gpus);
        EXPECT_LT(watch.seconds(), 2 * kSlow + 0.3) << "0.3 s of them before the kill";
        EXPECT_NE(std::string(ncclGetLastError(comm)).find("rank 2"), std::string::npos) << ncclGetLastError(comm);
        EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
      }
      self.meet(2, {2});
    });
    ASSERT_TRUE(children.awaitStageOfAll(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    children.kill(2);
    children.expectAllWell({2});
  }
}

}  // namespace
}  // namespace tutti::conformance::processes_faults_test
