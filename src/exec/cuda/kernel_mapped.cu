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

/// The first warp of a block. Every block waits for the peers itself; the first one tells of the call. What other blocks do with memory
/// that the peers have left to this rank is ordered by what each of their threads has seen and the barrier behind this.
__device__ bool begin(const CopyLaunch& call) {
  WarpSide side(call);
  CopyStep<WarpSide> step(call, side, true);
  // A call before that gave up was not counted, so what was said for that one would be taken for this one's.
  const bool hasEnded = arch::loadRelaxedSys(&call.wait.relay->stop) != 0;
  const bool isWell = blockIdx.x == 0 ? step.run(CopyStage::Begin) : step.join();
  return __all_sync(0xffffffffu, isWell && !hasEnded) != 0;
}

/// All threads; whether this block is the last one.
__device__ bool leave(MappedShared& shared, CopyState& state) {
  __syncthreads();
  if (threadIdx.x == 0) {
    arch::fenceAcqRelGpu();  // releases this block's stores; the last block's fence for all devices then covers them
    shared.isLast = arch::addRelaxedGpu(&state.done, 1) + 1 == gridDim.x;
    arch::fenceAcqRelGpu();
  }
  __syncthreads();
  return shared.isLast;
}

template <DataType kType>
__global__ void __launch_bounds__(kMappedThreads, 1) mappedKernel(const __grid_constant__ MappedLaunch launch) {
  __shared__ MappedShared shared;
  if (threadIdx.x == 32) prepare(shared, launch);
  if (threadIdx.x < kCopyThreads) {
    const bool isOpen = begin(launch.call);
    if (threadIdx.x == 0) shared.isOpen = isOpen;
  }
  __syncthreads();
  if (!shared.isOpen) return;
  runLoop<PlainFold, kType>(shared.job, shared.context);
  if (!leave(shared, *launch.call.state) || threadIdx.x >= kCopyThreads) return;
  if (threadIdx.x == 0) arch::storeRelaxedSys(&launch.call.state->done, 0);  // for the next call, which begins behind this one
  WarpSide side(launch.call);
  (void)CopyStep<WarpSide>(launch.call, side, true).run(CopyStage::End);
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
