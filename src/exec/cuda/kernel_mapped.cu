// The kernel that combines what lies in windows (mapped.h).
#include "exec/cuda/fold_plain.cuh"
#include "exec/cuda/kernels.h"
#include "exec/cuda/mapped.h"
#include "exec/cuda/warp_side.cuh"

namespace tutti::exec::cuda {
namespace {

struct MappedShared {
  Job job;
  LoopContext context;
  bool isOpen;
  bool isLast;
};

/// One thread.
__device__ void prepare(MappedShared& shared, const MappedLaunch& launch) {
  const MappedPart part = mappedPart(launch.bytes, static_cast<int32_t>(blockIdx.x), static_cast<int32_t>(gridDim.x));
  Job& job = shared.job;
  for (int s = 0; s < launch.sources; ++s) job.source[s] = launch.source[s] + part.begin;
  for (int t = 0; t < launch.targets; ++t) job.target[t] = launch.target[t] + part.begin;
  job.bytes = part.bytes;
  job.sources = launch.sources;
  job.targets = launch.targets;
  job.scaledSources = launch.scaling.hasFactor ? (1u << launch.sources) - 1 : 0;
  job.isLast = true;
  shared.context.numbers = numbersOf(launch.type, launch.op, launch.scaling);
  shared.context.workers = kMappedThreads;
}

/// The first warp of the first block.
__device__ bool openGate(const CopyLaunch& call) {
  WarpSide side(call);
  const bool isWell = CopyStep<WarpSide>(call, side).run(CopyStage::Begin);
  if (__all_sync(0xffffffffu, isWell) == 0) return false;
  __syncwarp();  // each thread has seen what its peers have stored; a vote orders nothing
  arch::fenceAcqRelSys();
  if (threadIdx.x == 0) arch::storeRelaxedSys(&call.state->isOpen, 1);
  return true;
}

/// One thread of any other block. Who has to wait for peers is the first one's to tell, so these seldom look themselves. Where one of them
/// has turned back, the gate may stay open for good: whoever finds the communicator ended does not pass either.
__device__ bool awaitGate(const CopyLaunch& call) {
  for (uint32_t tries = 1; arch::loadRelaxedSys(&call.state->isOpen) == 0; ++tries) {
    if (!kLooks || tries % kTriesPerCheck != 0) continue;
    if (arch::loadRelaxedSys(&call.wait.relay->stop) != 0) return false;
    if (tries % (16 * kTriesPerCheck) == 0 && lookForNews(call.wait, arch::globalTimerNs()) == News::Abort) return false;
  }
  arch::fenceAcqRelSys();
  return arch::loadRelaxedSys(&call.wait.relay->stop) == 0;
}

/// All threads; whether this block is the last one.
__device__ bool leave(MappedShared& shared, CopyState& state) {
  __syncthreads();
  if (threadIdx.x == 0) {
    arch::fenceAcqRelSys();
    shared.isLast = arch::addRelaxedGpu(&state.done, 1) + 1 == gridDim.x;
    arch::fenceAcqRelSys();
  }
  __syncthreads();
  return shared.isLast;
}

template <DataType kType>
__global__ void __launch_bounds__(kMappedThreads, 1) mappedKernel(const __grid_constant__ MappedLaunch launch) {
  __shared__ MappedShared shared;
  if (threadIdx.x == 32) prepare(shared, launch);
  if (blockIdx.x == 0) {
    if (threadIdx.x < kCopyThreads) {
      const bool isOpen = openGate(launch.call);
      if (threadIdx.x == 0) shared.isOpen = isOpen;
    }
  } else if (threadIdx.x == 0) {
    shared.isOpen = awaitGate(launch.call);
  }
  __syncthreads();
  if (!shared.isOpen) return;
  runLoop<PlainFold, kType>(shared.job, shared.context);
  if (!leave(shared, *launch.call.state) || threadIdx.x >= kCopyThreads) return;
  if (threadIdx.x == 0) {  // for the next call, which begins behind this one
    arch::storeRelaxedSys(&launch.call.state->isOpen, 0);
    arch::storeRelaxedSys(&launch.call.state->done, 0);
  }
  WarpSide side(launch.call);
  (void)CopyStep<WarpSide>(launch.call, side).run(CopyStage::End);
}

struct MappedFunction {
  template <DataType kType>
  const void* operator()() const {
    return reinterpret_cast<const void*>(&mappedKernel<kType>);
  }
};

}  // namespace

const KernelEntry& mappedEntry() {
  static const KernelEntry entry = makeEntry({kMappedThreads, 0}, MappedFunction{});
  return entry;
}

}  // namespace tutti::exec::cuda
