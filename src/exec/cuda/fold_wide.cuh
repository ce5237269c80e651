// The data loop of what lies in the memory of several devices: all that a thread combines at once is asked for before any of it is
// waited for, so that a pass takes as long as its slowest load, not as long as all of them one after the other.
//
// Run by all workers of a block together, on a job in shared memory of two sources and more. No function here waits. The bits are those of
// fold_plain.cuh.
#pragma once

#include "exec/cuda/fold_plain.cuh"

namespace tutti::exec::cuda {

/// 16-byte loads of all sources in flight for each thread: fewer for types that widen to four times their size, and for floats, which have
/// more threads (mapped.h).
template <DataType kType>
inline constexpr int kWideVectors = isInteger(kType) && sizeof(ElementOf<kType>) > 1 ? 12 : 8;

/// Up to kSources sources combined in order, rounded once, to all targets.
template <DataType kType, ReduceOp kOp, int kSources>
struct WidePass {
  using Fold = WordReduction<kType, kOp>;
  static constexpr int kCount = kWideVectors<kType> / kSources;
  static constexpr bool kScales = FoldPass<kType, kOp>::kScales;
  const Job& job;
  const Numbers& numbers;

  __device__ __forceinline__ void vectors(const VectorRange& range) const {
    arch::Words2 value[kSources][kCount];
#pragma unroll
    for (int s = 0; s < kSources; ++s)
      if (s < job.sources) loadVectors<kCount>(value[s], job.source[s], range);
#pragma unroll
    for (int i = 0; i < 2 * kCount; ++i) {
      Fold sum;
      sum.begin(scaled(value[0][i / 2].word[i % 2], 0), numbers);
#pragma unroll
      for (int s = 1; s < kSources; ++s)
        if (s < job.sources) sum.add(scaled(value[s][i / 2].word[i % 2], s), numbers);
      value[0][i / 2].word[i % 2] = divided(sum.word(numbers));
    }
    storeVectors<kCount>(value[0], job, range);
  }
  __device__ __forceinline__ void word(uint64_t at) const { FoldPass<kType, kOp>{job, numbers}.word(at); }

 private:
  __device__ __forceinline__ uint64_t scaled(uint64_t word, int source) const {
    if constexpr (kScales) {
      if ((job.scaledSources >> source & 1) != 0) return scaleWord<kType>(word, numbers);
    }
    return word;
  }
  __device__ __forceinline__ uint64_t divided(uint64_t word) const {
    if constexpr (kScales && isInteger(kType)) {
      if (job.isLast && numbers.divisor > 1) return divideWord<kType>(word, numbers);
    }
    return word;
  }
};

template <DataType kType, ReduceOp kOp>
struct WideFold {
  static __device__ __forceinline__ void run(const Job& job, LoopContext& context) {
    if (job.sources <= 2) {
      over<2>(job, context);
    } else if (job.sources <= 4) {
      over<4>(job, context);
    } else {
      over<8>(job, context);
    }
  }

 private:
  template <int kSources>
  static __device__ __forceinline__ void over(const Job& job, LoopContext& context) {
    const bool isFast = FoldPass<kType, kOp>::kScales || (job.scaledSources == 0 && !(job.isLast && context.numbers.divisor > 1));
    passOver<kWideVectors<kType> / kSources>(job, context, isFast, WidePass<kType, kOp, kSources>{job, context.numbers});
  }
};

}  // namespace tutti::exec::cuda
