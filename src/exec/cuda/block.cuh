// What every block does before it runs a work: finds its works, fetches the program, resolves what it computes with.
#pragma once

#include "exec/cuda/job.cuh"
#include "exec/cuda/program.cuh"

namespace tutti::exec::cuda {

/// Shared memory of every kernel.
struct BlockShared {
  Program program;
  Work work;
  LoopContext context;
};

/// Where a block stands in a work.
struct Place {
  int32_t channel;      ///< of the geometry
  int32_t pipeChannel;  ///< whose pipes and windows
  int32_t lane;
  int32_t steps;  ///< of the lane's program
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
  context.numbers = numbersOf(work.type, work.op, work.scaling);
  if (work.scaling.hasFactor) context.numbers.factor = loadFactor(work);
  context.wait = &launch.comm.wait;
  context.failed = 0;
  context.rank = launch.comm.rank;
  context.channel = pipeChannel;
  context.workers = workers;
}

/// Runs Lane::run(launch, shared, place) for every work that this block has a part in. All threads of the block.
template <class Lane>
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
    const int32_t channel = block / work.lanes;
    Place place{channel, channel + work.firstChannel, work.firstLane + block % work.lanes, 0};
    __syncthreads();
    copyWords(shared.work, work);
    place.steps = loadProgram(shared.program, work.program, place.channel, place.lane);
    if (isAlone) {
      arch::waitForPrecedingGrids();
      if (gridDim.x <= kMostEarlyBlocks) arch::allowNextGrid();
      isAlone = false;
    }
    if (blockIdx.x == 0 && threadIdx.x == blockDim.x - 1) postOnBoards(launch.comm.wait);
    if (threadIdx.x == 32) resolve(shared.context, launch, work, place.pipeChannel, Lane::kWorkers);
    lane.run(place);
  }
}

}  // namespace tutti::exec::cuda
