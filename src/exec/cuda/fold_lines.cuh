// The data loops of lines: 128 bytes that hold 120 of data and one flag of 8, written by 8 threads of a warp in one go ("LL128").
//
// Run by all workers of a block together, on a job in shared memory. Sources that carry flags are waited for here.
// 1. Line l is read and written by the same 8 neighbouring threads on all sides; the last of them has 8 bytes of data and the flag.
// 2. Only right where the 128 bytes of a line arrive together or in order of their addresses: tests/gpu/ll128_torture decides it for a
// machine.
// 3. An empty piece still has one line. Once a wait has given up nothing is stored any more.
#pragma once

#include "exec/cuda/job.cuh"

namespace tutti::exec::cuda {

inline constexpr int kLineThreads = 8;
inline constexpr int kLinesAtOnce = 2;  ///< that a thread has a part in

/// A thread's part of a line: 16 bytes, or 8 and the flag.
struct LinePart {
  uint64_t line;
  uint64_t at;  ///< of the piece's bytes
  bool isFlag;
  bool isWanted;

  __device__ __forceinline__ uint64_t offset() const { return line * kLineBytes + (threadIdx.x % kLineThreads) * sizeof(arch::Words2); }
};

__device__ __forceinline__ arch::Words2 loadPlainPart(const std::byte* base, const LinePart& part, uint64_t bytes, uint32_t elementBytes) {
  arch::Words2 value{};
  if (!part.isWanted) return value;
  value.word[0] = loadPlain(base, part.at, bytes, elementBytes);
  if (!part.isFlag) value.word[1] = loadPlain(base, part.at + 8, bytes, elementBytes);
  return value;
}

/// Whether the part's line is complete, judged by what its 8 threads have loaded. All threads of the warp call it.
__device__ __forceinline__ bool isComplete(const LinePart& part, const arch::Words2& value, uint64_t flag) {
  const unsigned ready = __ballot_sync(0xffffffffu, !part.isFlag || value.word[1] == flag);
  const unsigned flagLane = threadIdx.x % 32 / kLineThreads * kLineThreads + kLineThreads - 1;
  return !part.isWanted || (ready >> flagLane & 1u) != 0;
}

/// Waits for the flag of a line and loads the part. Each thread for itself.
inline __device__ __noinline__ arch::Words2 awaitLine(const Job& job, LoopContext& context, int source, uint64_t line, uint64_t offset) {
  const uint64_t flag = job.sourceFlag[source];
  const auto* word = reinterpret_cast<const uint64_t*>(job.source[source] + line * kLineBytes + kLineDataBytes);
  const WaitNote note{Waiting::ForCell, context.rank, job.sourcePeer[source], context.channel, job.step};
  if (context.hasFailed()) return {};
  const bool ok = waitUntil(*context.wait, note, flag, [&](uint64_t& seen) {
    seen = arch::loadRelaxedSys(word);
    return seen == flag;
  });
  if (!ok) context.failed = 1;
  return arch::loadRelaxedSys(reinterpret_cast<const arch::Words2*>(job.source[source] + offset));
}

__device__ __forceinline__ void storeParts(const Job& job, const LinePart& part, arch::Words2 value, uint32_t elementBytes) {
#pragma unroll 1
  for (int t = 0; t < job.targets; ++t) {
    __syncwarp();
    if ((job.flaggedTargets >> t & 1) != 0) {
      if (part.isFlag) value.word[1] = job.targetFlag[t];
      if (part.isWanted) arch::storeRelaxedSys(reinterpret_cast<arch::Words2*>(job.target[t] + part.offset()), value);
    } else if (part.isWanted) {
      storePlain(job.target[t], part.at, value.word[0], job.bytes, elementBytes);
      if (!part.isFlag) storePlain(job.target[t], part.at + 8, value.word[1], job.bytes, elementBytes);
    }
  }
}

/// Calls `body(parts)` for the parts of lines that this thread has, kLinesAtOnce at a time. All threads of a warp call it as often.
template <class Body>
__device__ __forceinline__ void forEachPart(const Job& job, LoopContext& context, Body&& body) {
  const uint64_t lines = (max(job.bytes, uint64_t{1}) + kLineDataBytes - 1) / kLineDataBytes;
  const uint64_t stride = static_cast<uint64_t>(context.workers) / kLineThreads;
  const uint64_t ofWarp = static_cast<uint64_t>(context.worker()) / 32 * (32 / kLineThreads);
#pragma unroll 1
  for (uint64_t base = ofWarp; base < lines; base += stride * kLinesAtOnce) {
    LinePart part[kLinesAtOnce];
#pragma unroll
    for (int i = 0; i < kLinesAtOnce; ++i) {
      const uint64_t line = base + stride * i + threadIdx.x % 32 / kLineThreads;
      const uint64_t place = threadIdx.x % kLineThreads;
      part[i] = {line, line * kLineDataBytes + place * 16, place == kLineThreads - 1, line < lines};
    }
    if (!body(part)) return;
  }
}

using LineParts = LinePart[kLinesAtOnce];
using LineValues = arch::Words2[kLinesAtOnce];

/// Loads the parts of `source`, and waits until their lines are complete.
__device__ __forceinline__ void loadLines(const Job& job, int source, const LineParts& part, LineValues& value) {
#pragma unroll
  for (int i = 0; i < kLinesAtOnce; ++i) {
    value[i] = {};
    if (part[i].isWanted) value[i] = arch::loadRelaxedSys(reinterpret_cast<const arch::Words2*>(job.source[source] + part[i].offset()));
  }
}
__device__ __forceinline__ void settleLines(const Job& job, LoopContext& context, int source, const LineParts& part, LineValues& value) {
#pragma unroll
  for (int i = 0; i < kLinesAtOnce; ++i) {
    if (!isComplete(part[i], value[i], job.sourceFlag[source])) value[i] = awaitLine(job, context, source, part[i].line, part[i].offset());
    __syncwarp();
  }
}
/// False where a wait has given up.
__device__ __forceinline__ bool storeLines(const Job& job, LoopContext& context, const LineParts& part, const LineValues& value) {
  if (__any_sync(0xffffffffu, context.hasFailed())) return false;
#pragma unroll
  for (int i = 0; i < kLinesAtOnce; ++i) storeParts(job, part[i], value[i], context.numbers.elementBytes);
  return true;
}

/// One source, bit for bit, to all targets.
__device__ __forceinline__ void moveLines(const Job& job, LoopContext& context) {
  forEachPart(job, context, [&](const LineParts& part) {
    LineValues value;
    if ((job.flaggedSources & 1) != 0) {
      loadLines(job, 0, part, value);
      settleLines(job, context, 0, part, value);
    } else {
#pragma unroll
      for (int i = 0; i < kLinesAtOnce; ++i) value[i] = loadPlainPart(job.source[0], part[i], job.bytes, context.numbers.elementBytes);
    }
    return storeLines(job, context, part, value);
  });
}

/// Sources combined in order, rounded once, to all targets. The own contribution, if there is one, is the first source; all others are
/// lines.
template <DataType kType, ReduceOp kOp>
struct LineFold {
  static __device__ __forceinline__ void run(const Job& job, LoopContext& context) {
    forEachPart(job, context, [&](const LineParts& part) {
      LineValues value;
      fold(job, context, part, value);
      return storeLines(job, context, part, value);
    });
  }

 private:
  static __device__ __forceinline__ void fold(const Job& job, LoopContext& context, const LineParts& part, LineValues& value) {
    const Numbers& numbers = context.numbers;
    constexpr int kWords = 2 * kLinesAtOnce;
    WordReduction<kType, kOp> sum[kWords];
    LineValues next;
    const bool hasOwn = job.plainSource == 0;
    if (job.sources > 1) loadLines(job, 1, part, next);
    if (hasOwn) {
#pragma unroll
      for (int i = 0; i < kLinesAtOnce; ++i) value[i] = loadPlainPart(job.source[0], part[i], job.bytes, sizeof(ElementOf<kType>));
      if (job.scaledSources != 0) {
#pragma unroll
        for (int i = 0; i < kWords; ++i) value[i / 2].word[i % 2] = scaleWord<kType>(value[i / 2].word[i % 2], numbers);
      }
    } else {
      loadLines(job, 0, part, value);
      settleLines(job, context, 0, part, value);
    }
    if (job.sources > 1) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) sum[i].begin(value[i / 2].word[i % 2], numbers);
#pragma unroll 1
      for (int s = 1;; ++s) {
        settleLines(job, context, s, part, next);
#pragma unroll
        for (int i = 0; i < kWords; ++i) sum[i].add(next[i / 2].word[i % 2], numbers);
        if (s + 1 >= job.sources) break;
        loadLines(job, s + 1, part, next);
      }
#pragma unroll
      for (int i = 0; i < kWords; ++i) value[i / 2].word[i % 2] = sum[i].word(numbers);
    }
    if (job.isLast && numbers.divisor > 1) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) value[i / 2].word[i % 2] = divideWord<kType>(value[i / 2].word[i % 2], numbers);
    }
  }
};

/// The whole of a job whose pipes hold lines. Flags have 64 bits and never come again.
template <DataType kType>
__device__ __forceinline__ void runLines(const Job& job, LoopContext& context) {
  if (job.sources == 0) return;  // a step that only signals
  if (job.isMove) {
    moveLines(job, context);
  } else {
    runLoop<LineFold, kType>(job, context);
  }
}

}  // namespace tutti::exec::cuda
