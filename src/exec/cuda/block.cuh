// What every block does before and after it runs a work: finds its works, writes the program down, resolves what it computes with.
#pragma once

#include "exec/cuda/job.cuh"
#include "exec/cuda/program.cuh"

namespace tutti::exec::cuda {

/// Shared memory of every kernel.
struct BlockShared {
  Program program;
  Work work;
  algo::LayoutView view;
  LoopContext context;
};

/// Where a block stands in a work.
struct Place {
  int32_t channel;      ///< of the geometry
  int32_t pipeChannel;  ///< whose pipes and windows
  int32_t lane;
};

template <class T>
__device__ __forceinline__ void copyWords(T& to, const T& from) {
  static_assert(sizeof(T) % sizeof(uint64_t) == 0 && alignof(T) >= sizeof(uint64_t));
  for (unsigned i = threadIdx.x; i < sizeof(T) / sizeof(uint64_t); i += blockDim.x)
    reinterpret_cast<uint64_t*>(&to)[i] = reinterpret_cast<const uint64_t*>(&from)[i];
}

/// The number that a factor's element makes, low bytes first.
__device__ __forceinline__ uint64_t loadFactor(const Work& work) {
  if (work.factorSource == nullptr) return work.scaling.factor;
  return loadPlainSlowly(static_cast<const std::byte*>(work.factorSource), sizeOf(work.type), sizeOf(work.type));
}

/// One thread: what the data loops need to know of the work.
__device__ __forceinline__ void resolve(LoopContext& context, const Launch& launch, const Work& work, int32_t pipeChannel,
                                        int32_t workers) {
  Numbers& n = context.numbers;
  n.factor = work.scaling.hasFactor ? loadFactor(work) : 0;
  n.flip = flipOf(work.type, work.op);
  n.divisor = work.scaling.divisor;
  n.loop = loopOf(work.type, work.op);
  n.elementBytes = sizeOf(work.type);
  n.isSigned = isSignedInteger(work.type);
  n.hasFactor = work.scaling.hasFactor;
  context.wait = &launch.comm.wait;
  context.failed = 0;
  context.rank = launch.comm.layout.rank.value;
  context.channel = pipeChannel;
  context.bulkBytes = launch.bulkBytes;
  context.workers = workers;
}

/// Runs Lane::run(launch, shared, place) for every work that this block has a part in. All threads of the block.
template <class Holds, class Lane>
__device__ __forceinline__ void runWorks(const Launch& launch, BlockShared& shared, Lane lane) {
  bool isAlone = true;  // the grids before this one may still be writing what it reads
  for (int32_t w = 0; w < launch.works; ++w) {
    if (isAlone && w >= kInlineWorks) {
      arch::waitForPrecedingGrids();
      isAlone = false;
    }
    const Work& work = w < kInlineWorks ? launch.work[w] : launch.more[w - kInlineWorks];
    const int32_t block = static_cast<int32_t>(blockIdx.x) - work.firstBlock;
    if (block < 0 || block >= work.blocks()) continue;
    __syncthreads();
    copyWords(shared.work, work);
    copyWords(shared.view, launch.comm.layout);
    __syncthreads();
    const int32_t channel = block / shared.work.lanes;
    const Place place{channel, channel + shared.work.firstChannel, shared.work.firstLane + block % shared.work.lanes};
    if (threadIdx.x == 0) {
      shared.view.root = Rank(shared.work.root);
      recordProgram<Holds>(shared.program, shared.view, shared.work.algorithm, place.lane, Lane::kSkipsSignals);
    }
    if (isAlone) {
      arch::waitForPrecedingGrids();
      arch::allowNextGrid();
      isAlone = false;
    }
    if (blockIdx.x == 0 && threadIdx.x == blockDim.x - 1) postOnBoards(launch.comm.wait);
    if (threadIdx.x == 32) resolve(shared.context, launch, shared.work, place.pipeChannel, Lane::kWorkers);
    lane.run(place);
  }
}

/// One thread: the program does not fit, which the launching side should have seen.
__device__ __forceinline__ void reportTooLong(const LoopContext& context, int32_t steps) {
  reportGiveUp(*context.wait, {Waiting::TooLong, context.rank, -1, context.channel, 0}, kMostSteps, static_cast<uint64_t>(steps));
}

}  // namespace tutti::exec::cuda
