// The stages of a stream lane: hunks of memory on their way through shared memory, and who may touch which when.
//
// Owner: the block, for as long as its kernel runs. Everything is counted from the kernel's beginning: hunks, folds and desks, so that the
// barrier of an event and the parity of its phase follow from its number.
// 1. A job's hunks follow one another, of each hunk its sources; hunk n lies in stage n % kStages.
// 2. `full`: the loader's hunk n has come. `empty`: a storer's copies have read it. `folded`: all warps of workers have left the result of
//    their nth fold in the stage of its first source.
// 3. `posted`: desk n is written. `joined`: the workers' part of it is done. `told`: all that it moves is visible and its signals are sent,
//    in the order of desks. `released`: all roles are done with it, and its storer has told.
// 4. A barrier tells only its last phase from the one before, so nobody waits for an event of a ring before the one that lies a whole ring
//    earlier has happened, and none happens before all who wait for that one have seen it. Desks and stages are posted and filled again
//    only when released and emptied. Roles skip what is not theirs and may be ahead of the loader, by the hunks of kStreamDesks desks at
//    most: that many barriers `full` and `folded` have.
// 5. Every thread of a role arrives for itself: racecheck does not see what one does for its warp.
#pragma once

#include "exec/cuda/arch/bulk.cuh"
#include "exec/cuda/fold_plain.cuh"

namespace tutti::exec::cuda {

inline constexpr uint32_t kStages = 7;
inline constexpr uint32_t kStageBytes = 28 << 10;
inline constexpr uint32_t kStreamDesks = 8;
inline constexpr uint32_t kStorers = 2;  ///< warps; storer n % kStorers stores what desk n moves

inline constexpr uint32_t kWarp = 32;
inline constexpr uint32_t kMostHunks = 32;  ///< of a job, with all sources
static_assert(kMostStreamedBytes == kMostHunks * uint64_t{kStageBytes});
inline constexpr uint32_t kHunkRing = kMostHunks * kStreamDesks;

struct StageBarriers {
  uint64_t full[kHunkRing];
  uint64_t folded[kHunkRing];
  uint64_t empty[kStages];
  uint64_t posted[kStreamDesks];
  uint64_t released[kStreamDesks];
  uint64_t joined[kStreamDesks];
  uint64_t told[kStreamDesks];
};

/// All threads, before a barrier of the block.
__device__ __forceinline__ void initStages(StageBarriers& barriers, uint32_t workers) {
  if constexpr (arch::kHasBulk) {
    for (uint32_t i = threadIdx.x; i < kHunkRing; i += blockDim.x) {
      arch::initBarrier(&barriers.full[i], 1);
      arch::initBarrier(&barriers.folded[i], workers);
      if (i < kStages) arch::initBarrier(&barriers.empty[i], 1);
      if (i >= kStreamDesks) continue;
      arch::initBarrier(&barriers.posted[i], kWarp);
      arch::initBarrier(&barriers.released[i], (1 + kStorers) * kWarp + workers);
      arch::initBarrier(&barriers.joined[i], workers);
      arch::initBarrier(&barriers.told[i], kWarp);
    }
    arch::fenceProxyAsync();
  }
}

/// Until event `number` has happened, of those that follow one another on a ring of `kRing` barriers.
template <uint32_t kRing>
__device__ __forceinline__ void awaitEvent(uint64_t (&ring)[kRing], uint32_t number) {
  while (!arch::hasCompleted(&ring[number % kRing], number / kRing & 1)) {
  }
}
template <uint32_t kRing>
__device__ __forceinline__ void tellEvent(uint64_t (&ring)[kRing], uint32_t number) {
  arch::arriveAt(&ring[number % kRing]);
}

/// What a job puts through the stages: whole vectors. The words behind them are the workers' to carry over.
struct Hunks {
  uint64_t bytes;  ///< of each source
  uint32_t count;
  uint32_t sources;

  __device__ __forceinline__ explicit Hunks(const Job& job)
      : bytes(job.bytes / sizeof(arch::Words2) * sizeof(arch::Words2)),
        count(static_cast<uint32_t>((bytes + kStageBytes - 1) / kStageBytes)),
        sources(static_cast<uint32_t>(job.sources)) {}
  static __device__ __forceinline__ uint64_t at(uint32_t hunk) { return static_cast<uint64_t>(hunk) * kStageBytes; }
  __device__ __forceinline__ uint32_t bytesOf(uint32_t hunk) const {
    return static_cast<uint32_t>(min(bytes - at(hunk), static_cast<uint64_t>(kStageBytes)));
  }
  __device__ __forceinline__ uint32_t stages() const { return count * sources; }
  /// One without hunks does not: the loader would have no part in it, and `told` could go on without it.
  __device__ __forceinline__ bool fit() const {
    return count > 0 && sources <= kStages && bytes <= kMostStreamedBytes && stages() <= kMostHunks;
  }
  /// Whether the stages of a hunk are needed for the next one.
  __device__ __forceinline__ bool areTight() const { return 2 * sources > kStages; }
};

extern __shared__ __align__(128) std::byte stageMemory[];
__device__ __forceinline__ std::byte* stage(uint32_t n) { return stageMemory + n % kStages * kStageBytes; }

/// Where a role stands: the stage of its next hunk, and its next fold.
struct StreamPlace {
  uint32_t stage = 0;
  uint32_t fold = 0;

  __device__ __forceinline__ void pass(const Job& job, const Hunks& hunks) {
    stage += hunks.stages();
    if (!job.isMove) fold += hunks.count;
  }
};

/// Combines the sources of each hunk in the order given, in shared memory. All workers; no function here waits for anything but stages.
template <DataType kType, ReduceOp kOp>
struct StageFold {
  using Fold = WordReduction<kType, kOp>;
  static constexpr int kUnroll = Fold::kElementBytes < 4 ? 1 : 2;

  static __device__ __forceinline__ void run(const Job& job, LoopContext& context, StageBarriers& barriers, const StreamPlace& place) {
    const Hunks hunks(job);
    uint32_t n = place.stage;
    for (uint32_t h = 0; h < hunks.count; ++h, n += hunks.sources) {
      for (uint32_t s = 0; s < hunks.sources; ++s) awaitEvent(barriers.full, n + s);
      foldHunk(job, context, n, hunks.bytesOf(h) / static_cast<uint32_t>(sizeof(arch::Words2)));
      arch::fenceProxyAsync();
      tellEvent(barriers.folded, place.fold + h);
    }
  }

 private:
  static __device__ __forceinline__ void foldHunk(const Job& job, const LoopContext& context, uint32_t first, uint32_t vectors) {
    const auto stride = static_cast<uint32_t>(context.workers);
#pragma unroll 1
    for (uint32_t v = static_cast<uint32_t>(context.worker()); v < vectors; v += kUnroll * stride) {
      Fold sum[2 * kUnroll];
      arch::Words2 value[kUnroll]{};
#pragma unroll 1
      for (uint32_t s = 0; s < static_cast<uint32_t>(job.sources); ++s) {
        const auto* from = reinterpret_cast<const arch::Words2*>(stage(first + s));
        const bool isScaled = (job.scaledSources >> s & 1) != 0;
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) {
          if (v + i * stride < vectors) value[i] = from[v + i * stride];
#pragma unroll
          for (int w = 0; w < 2; ++w) {
            if (isScaled) value[i].word[w] = scaleWord<kType>(value[i].word[w], context.numbers);
            if (s == 0) {
              sum[2 * i + w].begin(value[i].word[w], context.numbers);
            } else {
              sum[2 * i + w].add(value[i].word[w], context.numbers);
            }
          }
        }
      }
      auto* to = reinterpret_cast<arch::Words2*>(stage(first));
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
#pragma unroll
        for (int w = 0; w < 2; ++w) {
          if (job.sources > 1) value[i].word[w] = sum[2 * i + w].word(context.numbers);
          if (job.isLast && context.numbers.divisor > 1) value[i].word[w] = divideWord<kType>(value[i].word[w], context.numbers);
        }
        if (v + i * stride < vectors) to[v + i * stride] = value[i];
      }
    }
  }
};

}  // namespace tutti::exec::cuda
