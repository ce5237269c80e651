// A job: the bytes that one step moves or combines in one piece, with all addresses. Made by one warp, carried out by the workers of a
// block.
//
// Lies in shared memory; written before a barrier that the workers pass, read only after it.
// 1. Sources are combined in the order listed. All have the same number of bytes.
// 2. Every word of 8 bytes is read and written by one thread, so source and target may be the same memory.
// 3. Memory of pipes and windows is 16-byte aligned and may be written up to a multiple of 16 bytes; a caller's buffers are aligned to
//    their element and never touched beyond `bytes`.
#pragma once

#include "algo/step.h"
#include "exec/cuda/element.cuh"
#include "exec/cuda/plain.cuh"
#include "exec/cuda/wait.cuh"
#include "exec/cuda/work.h"

namespace tutti::exec::cuda {

inline constexpr int kMostSources = kMaxLocalRanks > kMostFan + 1 ? kMaxLocalRanks : kMostFan + 1;
inline constexpr int kMostTargets = kMostSources;  // what is combined of windows goes to all ranks

struct Job {
  const std::byte* source[kMostSources];
  std::byte* target[kMostTargets];
  uint64_t bytes;
  uint64_t sourceFlag[kMostSources];  ///< Cells, Lines: what says that the data has come
  uint64_t targetFlag[kMostTargets];
  int32_t sourcePeer[kMostSources];  ///< for reports
  uint32_t flaggedSources;           ///< bits: which are in the protocol's format; the others are plain memory
  uint32_t flaggedTargets;
  uint32_t scaledSources;  ///< bits: which are contributions as the caller has them
  int32_t plainSource;     ///< Cells, Lines: which source is plain memory, of those that are combined; -1: none
  int32_t sources;
  int32_t targets;
  int32_t step;
  uint64_t rewriteBytes;  ///< 0, or how many bytes of memory of each flagged target get flags in any case
  bool isMove;            ///< one source, bit for bit
  bool isLast;            ///< what is stored is finished: integers are divided
};

/// What the loops need beside the job; in shared memory, the same for all jobs of a work.
struct LoopContext {
  Numbers numbers;
  const WaitControl* wait;
  uint32_t failed;  ///< a wait gave up: set by whoever sees it first; no wait goes on after it
  int32_t rank;
  int32_t channel;
  int32_t workers;  ///< threads 0 to workers - 1 of the block carry jobs out

  __device__ __forceinline__ int worker() const { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ bool hasFailed() const { return *static_cast<const volatile uint32_t*>(&failed) != 0; }
};

/// Runs the loop of the work's operation, with `more` as its last arguments. Inlined: a function that is called saves registers of its
/// caller, and a kernel that calls 27 of them spilled (docs/decisions/0014).
template <template <DataType, ReduceOp> class Loop, DataType kType, class... More>
__device__ __forceinline__ void runLoop(const Job& job, LoopContext& context, More&... more) {
  switch (context.numbers.loop % kNumLoopOps) {
    case 0: Loop<kType, kLoopOps[0]>::run(job, context, more...); break;
    case 1: Loop<kType, kLoopOps[1]>::run(job, context, more...); break;
    default: Loop<kType, kLoopOps[2]>::run(job, context, more...); break;
  }
}

}  // namespace tutti::exec::cuda
