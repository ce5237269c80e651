// The data loops of the Simple protocol: plain memory on all sides, read and written in vectors of 16 bytes.
//
// Run by all workers of a block together, on a job in shared memory. No function here waits.
#pragma once

#include "exec/cuda/job.cuh"

namespace tutti::exec::cuda {

/// 16-byte loads of one source in flight for each thread. Types that widen to four or eight times their size have fewer.
template <DataType kType>
inline constexpr int kPlainUnroll = sizeof(ElementOf<kType>) == 1 ? 2 : 4;
inline constexpr int kMoveUnroll = 8;

/// Whether all memory of the job is aligned to vectors.
__device__ __forceinline__ bool isVectorAligned(const Job& job) {
  uintptr_t all = 0;
  for (int i = 0; i < job.sources; ++i) all |= reinterpret_cast<uintptr_t>(job.source[i]);
  for (int i = 0; i < job.targets; ++i) all |= reinterpret_cast<uintptr_t>(job.target[i]);
  return all % sizeof(arch::Words2) == 0;
}

/// The vectors of one pass of a thread: the first, and every stride-th after it, as many as there are before `end`.
struct VectorRange {
  uint64_t first;
  int stride;
  uint64_t end;

  __device__ __forceinline__ bool has(int i) const { return first + static_cast<uint64_t>(i * stride) < end; }
};

template <int kCount>
__device__ __forceinline__ void loadVectors(arch::Words2 (&to)[kCount], const std::byte* from, const VectorRange& range) {
  const arch::Words2* p = reinterpret_cast<const arch::Words2*>(from) + range.first;
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = range.has(i) ? arch::loadWeak(p + i * range.stride) : arch::Words2{};
}
template <int kCount>
__device__ __forceinline__ void storeVectors(const arch::Words2 (&from)[kCount], const Job& job, const VectorRange& range) {
#pragma unroll 1
  for (int t = 0; t < job.targets; ++t) {
    arch::Words2* p = reinterpret_cast<arch::Words2*>(job.target[t]) + range.first;
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (range.has(i)) arch::storeWeak(p + i * range.stride, from[i]);
  }
}

/// Calls `pass.vectors(range)` for all hunks of kUnroll vectors a worker, the last of which may be less, if `isFast`, and `pass.word(at)`
/// for all words that are left.
template <int kUnroll, class Pass>
__device__ __forceinline__ void passOver(const Job& job, const LoopContext& context, bool isFast, Pass&& pass) {
  const int stride = context.workers;
  uint64_t done = 0;
  if (isFast && isVectorAligned(job)) {
    const uint64_t end = job.bytes / sizeof(arch::Words2);
#pragma unroll 1
    for (uint64_t v = context.worker(); v < end; v += static_cast<uint64_t>(stride) * kUnroll) pass.vectors({v, stride, end});
    done = end * sizeof(arch::Words2);
  }
#pragma unroll 1
  for (uint64_t at = done + 8 * static_cast<uint64_t>(context.worker()); at < job.bytes; at += 8 * static_cast<uint64_t>(stride))
    pass.word(at);
}

/// One source, bit for bit, to all targets.
struct MovePass {
  const Job& job;
  uint32_t elementBytes;

  __device__ __forceinline__ void vectors(const VectorRange& range) const {
    arch::Words2 value[kMoveUnroll];
    loadVectors<kMoveUnroll>(value, job.source[0], range);
    storeVectors<kMoveUnroll>(value, job, range);
  }
  __device__ __forceinline__ void word(uint64_t at) const {
    const uint64_t word = loadPlain(job.source[0], at, job.bytes, elementBytes);
#pragma unroll 1
    for (int t = 0; t < job.targets; ++t) storePlain(job.target[t], at, word, job.bytes, elementBytes);
  }
};

/// Sources combined in order, rounded once, to all targets.
template <DataType kType, ReduceOp kOp>
struct FoldPass {
  using Fold = WordReduction<kType, kOp>;
  static constexpr int kCount = kPlainUnroll<kType>;
  static constexpr bool kScales = kOp == ReduceOp::Sum;  // no other operation has a factor or a divisor
  using Vectors = arch::Words2[kCount];
  const Job& job;
  const Numbers& numbers;

  __device__ __forceinline__ void vectors(const VectorRange& range) const {
    Vectors value;
    Vectors next;
    loadVectors<kCount>(value, job.source[0], range);
    if (job.sources > 1) loadVectors<kCount>(next, job.source[1], range);
    scale(value, 0);
    if (job.sources > 1) {
      Fold sum[2 * kCount];
#pragma unroll
      for (int i = 0; i < 2 * kCount; ++i) sum[i].begin(value[i / 2].word[i % 2], numbers);
#pragma unroll 1
      for (int s = 1;; ++s) {
        scale(next, s);
#pragma unroll
        for (int i = 0; i < 2 * kCount; ++i) sum[i].add(next[i / 2].word[i % 2], numbers);
        if (s + 1 >= job.sources) break;
        loadVectors<kCount>(next, job.source[s + 1], range);
      }
#pragma unroll
      for (int i = 0; i < 2 * kCount; ++i) value[i / 2].word[i % 2] = sum[i].word(numbers);
    }
    divide(value);
    storeVectors<kCount>(value, job, range);
  }

  __device__ __forceinline__ void word(uint64_t at) const {
    Fold sum;
    uint64_t value = 0;
#pragma unroll 1
    for (int s = 0; s < job.sources; ++s) {
      value = loadPlain(job.source[s], at, job.bytes, Fold::kElementBytes);
      if ((job.scaledSources >> s & 1) != 0) value = scaleWord<kType>(value, numbers);
      if (s == 0) {
        sum.begin(value, numbers);
      } else {
        sum.add(value, numbers);
      }
    }
    if (job.sources > 1) value = sum.word(numbers);
    if (job.isLast && numbers.divisor > 1) value = divideWord<kType>(value, numbers);
#pragma unroll 1
    for (int t = 0; t < job.targets; ++t) storePlain(job.target[t], at, value, job.bytes, Fold::kElementBytes);
  }

 private:
  __device__ __forceinline__ void scale(Vectors& value, int source) const {
    if constexpr (kScales) {
      if ((job.scaledSources >> source & 1) == 0) return;
#pragma unroll
      for (int i = 0; i < 2 * kCount; ++i) value[i / 2].word[i % 2] = scaleWord<kType>(value[i / 2].word[i % 2], numbers);
    }
  }
  __device__ __forceinline__ void divide(Vectors& value) const {
    if constexpr (kScales && isInteger(kType)) {
      if (!job.isLast || numbers.divisor <= 1) return;
#pragma unroll
      for (int i = 0; i < 2 * kCount; ++i) value[i / 2].word[i % 2] = divideWord<kType>(value[i / 2].word[i % 2], numbers);
    }
  }
};

template <DataType kType, ReduceOp kOp>
struct PlainFold {
  static __device__ __forceinline__ void run(const Job& job, LoopContext& context) {
    const bool isFast = FoldPass<kType, kOp>::kScales || (job.scaledSources == 0 && !(job.isLast && context.numbers.divisor > 1));
    passOver<kPlainUnroll<kType>>(job, context, isFast, FoldPass<kType, kOp>{job, context.numbers});
  }
};

/// Any job of plain memory. All workers.
template <DataType kType>
__device__ __forceinline__ void runPlain(const Job& job, LoopContext& context) {
  if (job.isMove) {
    passOver<kMoveUnroll>(job, context, true, MovePass{job, context.numbers.elementBytes});
  } else {
    runLoop<PlainFold, kType>(job, context);
  }
}

}  // namespace tutti::exec::cuda
