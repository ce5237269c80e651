// Kernels without a GPU: launches are carried out on the host, over the very pipes and windows that they name, by the streams of a fake
// driver. So everything between the API and the kernels runs where there is no GPU.
//
// Owner: comm::Devices; the fake driver outlives it. Any thread. Blocks of a launch take turns on the thread of its stream.
// 1. A launch that breaks a rule of work.h or pipe.h, or names memory that its device cannot access, ends the process with a text.
// 2. One block of each kernel fits onto a multiprocessor.
#pragma once

#include "driver/cuda/fake.h"
#include "exec/cuda/host_probe.h"

namespace tutti::exec::cuda {

/// What a process has launched so far, of all sorts of kernels that a call has.
struct HostCounts {
  uint64_t launches = 0;  ///< that move data
  int32_t mostBlocks = 0;  ///< of one of them
  uint64_t copyStages = 0;   ///< around copies of engines, by kernels and by streams
  uint64_t streamStages = 0;  ///< of those, by streams
  uint64_t moved = 0;   ///< that move between windows, by one block or several
  int32_t movedBlocks = 0;  ///< of the latest of them
  uint64_t mapped = 0;  ///< that combine what lies in windows
  int32_t mappedBlocks = 0;  ///< of the latest of them
};

class HostKernels final : public Executor {
 public:
  static HostCounts counts();
  /// How long kernels that only combine (mapped.h, 5) wait before they begin; for tests of what has to wait for them.
  static void delayAlone(int ms);
  explicit HostKernels(driver::cuda::FakeApi& fake) : fake_(fake) {}
  Status load(KernelUses& uses) override;
  Status launch(KernelId kernel, const Launch& launch, const LaunchOptions& options, void* stream) override;
  Status probe(const ProbeLaunch& launch, void* stream) override { return playProbes(fake_, launch, stream); }
  Status nearPages(const NearLaunch& launch, void* stream) override { return playNearPages(fake_, launch, stream); }
  Status copies(const CopyLaunch& launch, CopyStage stage, void* stream) override;
  Status moved(const MovedLaunch& launch, const Grid& grid, void* stream) override;
  Status mapped(const MappedLaunch& launch, const Grid& grid, void* stream) override;

 private:
  driver::cuda::FakeApi& fake_;
};

}  // namespace tutti::exec::cuda
