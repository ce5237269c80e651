// The kernels that move between windows (moved.h): of one block, and of several.
#include "exec/cuda/fold_plain.cuh"
#include "exec/cuda/kernels.h"
#include "exec/cuda/mapped.h"
#include "exec/cuda/moved.h"
#include "exec/cuda/together.cuh"

namespace tutti::exec::cuda {
namespace {

struct MovedShared {
  Job job[kMaxLocalRanks];
  LoopContext context;
  Together together;
};

/// A thread for each piece: all of it, or what is this block's of `blocks`.
__device__ void prepare(MovedShared& shared, const MovedLaunch& launch, int32_t block, int32_t blocks) {
  const auto p = static_cast<int>(threadIdx.x);
  if (p == 0) {
    shared.context.workers = static_cast<int32_t>(blockDim.x);
    shared.context.numbers.elementBytes = launch.elementBytes;
  }
  if (p >= launch.pieces) return;
  const MovedPiece& piece = launch.piece[p];
  const MappedPart part = blocks > 1 ? mappedPart(piece.bytes, block, blocks) : MappedPart{0, piece.bytes};
  Job& job = shared.job[p];
  job.source[0] = piece.from + part.begin;
  job.target[0] = piece.to + part.begin;
  job.bytes = part.bytes;
  job.sources = job.targets = 1;
}

__device__ __forceinline__ void move(const Job& job, const LoopContext& context) {
  passOver<kMoveUnroll>(job, context, true, MovePass{job, context.numbers.elementBytes});
}

__global__ void __launch_bounds__(kMovedThreads, 1) movedKernel(const __grid_constant__ MovedLaunch launch) {
  __shared__ MovedShared shared;
  const bool isSide = threadIdx.x < kCopyThreads;
  WarpSide side(launch.call);
  CopyStep<WarpSide> step(launch.call, side);
  if (isSide) {
    prepare(shared, launch, 0, 1);
    const bool hasEnded = hasGivenUp(launch.call);
    const bool isOpen = __all_sync(0xffffffffu, step.run(CopyStage::Begin) && !hasEnded) != 0;
    if (threadIdx.x == 0) shared.together.isOpen = isOpen;
  }
  __syncthreads();
  if (!shared.together.isOpen) return;
#pragma unroll 1
  for (int p = 0; p <= launch.pieces; ++p) {
    if (p == launch.given) {
      __syncthreads();
      if (isSide) step.tellAll(CopyStage::End);
    }
    if (p == launch.pieces) break;
    move(shared.job[p], shared.context);
  }
  if (isSide) (void)step.awaitAll(CopyStage::End);
}

__global__ void __launch_bounds__(kMovedTogetherThreads, 1) movedTogetherKernel(const __grid_constant__ MovedLaunch launch) {
  __shared__ MovedShared shared;
  const auto block = static_cast<int32_t>(blockIdx.x);
  const bool gives = block < launch.givers;
  const int32_t others = static_cast<int32_t>(gridDim.x) - launch.givers;
  if (threadIdx.x < kCopyThreads) prepare(shared, launch, gives ? block : block - launch.givers, gives ? launch.givers : others);
  if (!gives) {
    __syncthreads();
    if (launch.given < launch.pieces) move(shared.job[launch.given], shared.context);
    return;
  }
  if (!openTogether(launch.call, shared.together)) return;
#pragma unroll 1
  for (int32_t p = 0; p < launch.given; ++p) move(shared.job[(block + p) % launch.given], shared.context);
  closeTogether(launch.call, shared.together, static_cast<uint32_t>(launch.givers));
}

}  // namespace

const void* movedFunction() { return reinterpret_cast<const void*>(&movedKernel); }
const void* movedTogetherFunction() { return reinterpret_cast<const void*>(&movedTogetherKernel); }

}  // namespace tutti::exec::cuda
