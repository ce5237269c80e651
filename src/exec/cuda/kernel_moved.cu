// The kernel of one block that moves little between windows (moved.h).
#include "exec/cuda/fold_plain.cuh"
#include "exec/cuda/kernels.h"
#include "exec/cuda/moved.h"
#include "exec/cuda/warp_side.cuh"

namespace tutti::exec::cuda {
namespace {

struct MovedShared {
  Job job[kMaxLocalRanks];
  LoopContext context;
  bool isOpen;
};

/// A thread for each piece.
__device__ void prepare(MovedShared& shared, const MovedLaunch& launch) {
  const auto p = static_cast<int>(threadIdx.x);
  if (p == 0) {
    shared.context.workers = kMovedThreads;
    shared.context.numbers.elementBytes = launch.elementBytes;
  }
  if (p >= launch.pieces) return;
  Job& job = shared.job[p];
  job.source[0] = launch.piece[p].from;
  job.target[0] = launch.piece[p].to;
  job.bytes = launch.piece[p].bytes;
  job.sources = job.targets = 1;
}

__global__ void __launch_bounds__(kMovedThreads, 1) movedKernel(const __grid_constant__ MovedLaunch launch) {
  __shared__ MovedShared shared;
  const bool isSide = threadIdx.x < kCopyThreads;
  WarpSide side(launch.call);
  CopyStep<WarpSide> step(launch.call, side);
  if (isSide) {
    prepare(shared, launch);
    const bool isOpen = __all_sync(0xffffffffu, step.run(CopyStage::Begin)) != 0;
    if (threadIdx.x == 0) shared.isOpen = isOpen;
  }
  __syncthreads();
  if (!shared.isOpen) return;
#pragma unroll 1
  for (int p = 0; p <= launch.pieces; ++p) {
    if (p == launch.given) {
      __syncthreads();
      if (isSide) step.tellAll(CopyStage::End);
    }
    if (p == launch.pieces) break;
    passOver<kMoveUnroll>(shared.job[p], shared.context, true, MovePass{shared.job[p], shared.context.numbers.elementBytes});
  }
  if (isSide) (void)step.awaitAll(CopyStage::End);
}

}  // namespace

const void* movedFunction() { return reinterpret_cast<const void*>(&movedKernel); }

}  // namespace tutti::exec::cuda
