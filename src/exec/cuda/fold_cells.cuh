// The data loops of cells: 16 bytes that hold 8 of data, each half beside a flag, so that whoever sees the flags has the data ("LL").
//
// Run by all workers of a block together, on a job in shared memory. Sources that carry flags are waited for here.
// 1. Cell c of a piece is read and written by thread c modulo the workers; an empty piece still has one cell.
// 2. Once a wait has given up nothing is stored any more.
#pragma once

#include "exec/cuda/cell.cuh"
#include "exec/cuda/job.cuh"

namespace tutti::exec::cuda {

/// Sources whose cells are loaded together before the first is needed.
inline constexpr int kCellsAtOnce = 4;

inline __device__ __noinline__ arch::Words2 awaitCell(const Job& job, LoopContext& context, int source, uint64_t c) {
  const auto* at = reinterpret_cast<const arch::Words2*>(job.source[source]) + c;
  const uint64_t epoch = job.sourceFlag[source];
  arch::Words2 cell{};
  const WaitNote note{Waiting::ForCell, context.rank, job.sourcePeer[source], context.channel, job.step};
  if (context.hasFailed()) return cell;
  const bool ok = waitUntil(*context.wait, note, epoch, [&](uint64_t& seen) {
    cell = arch::loadRelaxedSys(at);
    seen = cell.word[0] >> 32;
    return isSealed(cell, epoch);
  });
  if (!ok) context.failed = 1;
  return cell;
}

__device__ __forceinline__ void storeCell(const Job& job, uint64_t c, uint64_t word, uint32_t elementBytes) {
#pragma unroll 1
  for (int t = 0; t < job.targets; ++t) {
    if ((job.flaggedTargets >> t & 1) != 0) {
      arch::storeRelaxedSys(reinterpret_cast<arch::Words2*>(job.target[t]) + c, sealCell(word, job.targetFlag[t]));
    } else {
      storePlain(job.target[t], 8 * c, word, job.bytes, elementBytes);
    }
  }
}
__device__ __forceinline__ uint64_t cellsOf(const Job& job) { return (max(job.bytes, uint64_t{1}) + 7) / 8; }

/// One source, bit for bit, to all targets.
__device__ __forceinline__ void moveCells(const Job& job, LoopContext& context) {
  const bool isFlagged = (job.flaggedSources & 1) != 0;
  const uint32_t elementBytes = context.numbers.elementBytes;
#pragma unroll 1
  for (uint64_t c = context.worker(); c < cellsOf(job); c += context.workers) {
    uint64_t word;
    if (isFlagged) {
      arch::Words2 cell = arch::loadRelaxedSys(reinterpret_cast<const arch::Words2*>(job.source[0]) + c);
      if (!isSealed(cell, job.sourceFlag[0])) cell = awaitCell(job, context, 0, c);
      word = dataOf(cell);
    } else {
      word = loadPlain(job.source[0], 8 * c, job.bytes, elementBytes);
    }
    if (context.hasFailed()) return;
    storeCell(job, c, word, elementBytes);
  }
}

/// Sources combined in order, rounded once, to all targets. Of the sources one at most is plain memory: the own contribution.
template <DataType kType, ReduceOp kOp>
struct CellFold {
  static __device__ __forceinline__ void run(const Job& job, LoopContext& context) {
#pragma unroll 1
    for (uint64_t c = context.worker(); c < cellsOf(job); c += context.workers) {
      const uint64_t word = fold(job, context, c);
      if (context.hasFailed()) return;
      storeCell(job, c, word, sizeof(ElementOf<kType>));
    }
  }

 private:
  static __device__ __forceinline__ uint64_t fold(const Job& job, LoopContext& context, uint64_t c) {
    const Numbers& numbers = context.numbers;
    WordReduction<kType, kOp> sum;
    uint64_t own = 0;
    uint64_t lone = 0;  // the first source, which is a cell where all contributions are received
    if (job.plainSource >= 0) {
      own = loadPlain(job.source[job.plainSource], 8 * c, job.bytes, sizeof(ElementOf<kType>));
      if (job.scaledSources != 0) own = scaleWord<kType>(own, numbers);
    }
#pragma unroll 1
    for (int first = 0; first < job.sources; first += kCellsAtOnce) {
      arch::Words2 value[kCellsAtOnce];
#pragma unroll
      for (int i = 0; i < kCellsAtOnce; ++i) {
        if (first + i < job.sources && first + i != job.plainSource)
          value[i] = arch::loadRelaxedSys(reinterpret_cast<const arch::Words2*>(job.source[first + i]) + c);
      }
#pragma unroll
      for (int i = 0; i < kCellsAtOnce; ++i) {
        const int s = first + i;
        if (s >= job.sources) break;
        uint64_t word = own;
        if (s != job.plainSource) {
          if (!isSealed(value[i], job.sourceFlag[s])) value[i] = awaitCell(job, context, s, c);
          word = dataOf(value[i]);
        }
        if (s == 0) {
          lone = word;
          sum.begin(word, numbers);
        } else {
          sum.add(word, numbers);
        }
      }
    }
    const uint64_t word = job.sources > 1 ? sum.word(numbers) : lone;
    return job.isLast && numbers.divisor > 1 ? divideWord<kType>(word, numbers) : word;
  }
};

/// Gives a flag to every cell of the targets that the job did not need. Rare: kRewriteEvery.
inline __device__ __noinline__ void rewriteCells(const Job& job, const LoopContext& context) {
  const uint64_t cells = (max(job.bytes, uint64_t{1}) + 7) / 8;
  for (int t = 0; t < job.targets; ++t) {
    if ((job.flaggedTargets >> t & 1) == 0) continue;
    for (uint64_t c = cells + context.worker(); c < job.rewriteBytes / kCellBytes; c += context.workers)
      arch::storeRelaxedSys(reinterpret_cast<arch::Words2*>(job.target[t]) + c, sealCell(0, job.targetFlag[t]));
  }
}

/// The whole of a job whose pipes or windows hold cells.
template <DataType kType>
__device__ __forceinline__ void runCells(const Job& job, LoopContext& context) {
  if (job.sources == 0) return;  // a step that only signals
  if (job.isMove) {
    moveCells(job, context);
  } else {
    runLoop<CellFold, kType>(job, context);
  }
  if (job.rewriteBytes != 0) rewriteCells(job, context);
}

}  // namespace tutti::exec::cuda
