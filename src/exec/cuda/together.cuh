// How several blocks of a kernel carry out a call on windows together (mapped.h, moved.h): each begins by itself, and the last of those
// that work for others tells of the end.
#pragma once

#include "exec/cuda/arch/memory.cuh"
#include "exec/cuda/warp_side.cuh"

namespace tutti::exec::cuda {

struct Together {
  bool isOpen;
  bool isLast;
};

/// Whether a call before has: what several blocks carry out is not counted then, so what was said for it would be taken for the next one's.
__device__ inline bool hasGivenUp(const CopyLaunch& call) { return arch::loadRelaxedSys(&call.wait.relay->stop) != 0; }

/// The first warp of a block. Every block waits for the peers itself; the first one tells of the call. What other blocks do with memory
/// that the peers have left to this rank is ordered by what each of their threads has seen and the barrier behind this.
__device__ inline bool beginTogether(const CopyLaunch& call) {
  WarpSide side(call);
  CopyStep<WarpSide> step(call, side, true);
  const bool hasEnded = hasGivenUp(call);
  const bool isWell = blockIdx.x == 0 ? step.run(CopyStage::Begin) : step.join();
  return __all_sync(0xffffffffu, isWell && !hasEnded) != 0;
}

/// All threads of a block. False: the block does nothing.
__device__ inline bool openTogether(const CopyLaunch& call, Together& shared) {
  if (threadIdx.x < kCopyThreads) {
    const bool isOpen = beginTogether(call);
    if (threadIdx.x == 0) shared.isOpen = isOpen;
  }
  __syncthreads();
  return shared.isOpen;
}

/// All threads of each of `blocks` blocks, behind what they have done; the one that comes last carries out End.
__device__ inline void closeTogether(const CopyLaunch& call, Together& shared, uint32_t blocks) {
  __syncthreads();
  if (threadIdx.x == 0) {
    arch::fenceAcqRelGpu();  // releases this block's stores; the last block's fence for all devices then covers them
    shared.isLast = arch::addRelaxedGpu(&call.state->done, 1) + 1 == blocks;
    arch::fenceAcqRelGpu();
  }
  __syncthreads();
  if (!shared.isLast || threadIdx.x >= kCopyThreads) return;
  if (threadIdx.x == 0) arch::storeRelaxedSys(&call.state->done, 0);  // for the next call, which begins behind this one
  WarpSide side(call);
  (void)CopyStep<WarpSide>(call, side, true).run(CopyStage::End);
}

}  // namespace tutti::exec::cuda
