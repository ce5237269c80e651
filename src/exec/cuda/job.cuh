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
#include "exec/cuda/wait.cuh"
#include "exec/cuda/work.h"

namespace tutti::exec::cuda {

inline constexpr int kMostSources = kMaxLocalRanks > kMostFan + 1 ? kMaxLocalRanks : kMostFan + 1;
inline constexpr int kMostTargets = kMostFan + 1;

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
  uint32_t bulkBytes;  ///< dynamic shared memory for the bulk copy engine; 0: it is not used
  int32_t workers;     ///< threads 0 to workers - 1 of the block carry jobs out

  __device__ __forceinline__ int worker() const { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ bool hasFailed() const { return *static_cast<const volatile uint32_t*>(&failed) != 0; }
};

/// Loads `bytes` <= 8 from plain memory of any alignment; what lies beyond is zero.
__device__ __forceinline__ uint64_t loadPlainSlowly(const std::byte* p, uint32_t bytes, uint32_t elementBytes) {
  uint64_t word = 0;
  if (elementBytes == 8) return *reinterpret_cast<const uint64_t*>(p);
  if (elementBytes == 4) {
    for (uint32_t i = 0; i < bytes; i += 4) word |= static_cast<uint64_t>(*reinterpret_cast<const uint32_t*>(p + i)) << (8 * i);
  } else if (elementBytes == 2) {
    for (uint32_t i = 0; i < bytes; i += 2) word |= static_cast<uint64_t>(*reinterpret_cast<const uint16_t*>(p + i)) << (8 * i);
  } else {
    for (uint32_t i = 0; i < bytes; ++i) word |= static_cast<uint64_t>(*reinterpret_cast<const uint8_t*>(p + i)) << (8 * i);
  }
  return word;
}
__device__ __forceinline__ void storePlainSlowly(std::byte* p, uint64_t word, uint32_t bytes, uint32_t elementBytes) {
  if (elementBytes == 8) {
    *reinterpret_cast<uint64_t*>(p) = word;
  } else if (elementBytes == 4) {
    for (uint32_t i = 0; i < bytes; i += 4) *reinterpret_cast<uint32_t*>(p + i) = static_cast<uint32_t>(word >> (8 * i));
  } else if (elementBytes == 2) {
    for (uint32_t i = 0; i < bytes; i += 2) *reinterpret_cast<uint16_t*>(p + i) = static_cast<uint16_t>(word >> (8 * i));
  } else {
    for (uint32_t i = 0; i < bytes; ++i) *reinterpret_cast<uint8_t*>(p + i) = static_cast<uint8_t>(word >> (8 * i));
  }
}

/// The word at byte `at` of a job's plain memory, `at` a multiple of 8. Memory that is not the caller's is always aligned and whole.
__device__ __forceinline__ uint64_t loadPlain(const std::byte* base, uint64_t at, uint64_t bytes, uint32_t elementBytes) {
  const std::byte* p = base + at;
  if (at >= bytes) return 0;
  if (at + 8 <= bytes && reinterpret_cast<uintptr_t>(p) % 8 == 0) return arch::loadWeak(reinterpret_cast<const uint64_t*>(p));
  return loadPlainSlowly(p, static_cast<uint32_t>(min(bytes - at, uint64_t{8})), elementBytes);
}
__device__ __forceinline__ void storePlain(std::byte* base, uint64_t at, uint64_t word, uint64_t bytes, uint32_t elementBytes) {
  std::byte* p = base + at;
  if (at >= bytes) return;
  if (at + 8 <= bytes && reinterpret_cast<uintptr_t>(p) % 8 == 0) {
    arch::storeWeak(reinterpret_cast<uint64_t*>(p), word);
  } else {
    storePlainSlowly(p, word, static_cast<uint32_t>(min(bytes - at, uint64_t{8})), elementBytes);
  }
}

/// Runs Loop<type, op>::run of the work's numbers: a search, because a chain of 27 comparisons would be felt.
template <template <DataType, ReduceOp> class Loop, int kFirst = 0, int kEnd = kNumLoops>
__device__ __forceinline__ void runLoop(const Job& job, LoopContext& context) {
  if constexpr (kEnd - kFirst == 1) {
    Loop<kLoopTypes[kFirst / kNumLoopOps], kLoopOps[kFirst % kNumLoopOps]>::run(job, context);
  } else {
    constexpr int kMiddle = (kFirst + kEnd) / 2;
    if (context.numbers.loop < kMiddle) {
      runLoop<Loop, kFirst, kMiddle>(job, context);
    } else {
      runLoop<Loop, kMiddle, kEnd>(job, context);
    }
  }
}

}  // namespace tutti::exec::cuda
