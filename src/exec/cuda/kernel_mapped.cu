// The kernel that combines what lies in windows (mapped.h).
#include "exec/cuda/fold_wide.cuh"
#include "exec/cuda/kernels.h"
#include "exec/cuda/mapped.h"
#include "exec/cuda/together.cuh"

namespace tutti::exec::cuda {
namespace {

struct MappedShared {
  Job job;
  LoopContext context;
  Together together;
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
  shared.context.workers = mappedThreads(launch.type);
}

template <DataType kType>
__global__ void __launch_bounds__(mappedThreads(kType), 1) mappedKernel(const __grid_constant__ MappedLaunch launch) {
  __shared__ MappedShared shared;
  if (threadIdx.x == 32) prepare(shared, launch);
  if (launch.isAlone) {
    if (threadIdx.x == 0) shared.together.isOpen = !hasGivenUp(launch.call);
    __syncthreads();
    if (!shared.together.isOpen) return;
  } else if (!openTogether(launch.call, shared.together)) {
    return;
  }
  runLoop<WideFold, kType>(shared.job, shared.context);
  if (!launch.isAlone) closeTogether(launch.call, shared.together, gridDim.x);
}

struct MappedFunction {
  template <DataType kType>
  const void* operator()() const {
    return reinterpret_cast<const void*>(&mappedKernel<kType>);
  }
};

}  // namespace

const KernelEntry& mappedEntry() {
  static const KernelEntry entry = makeEntry({mappedThreads(DataType::F32), 0}, MappedFunction{});
  return entry;
}

}  // namespace tutti::exec::cuda
