// One-shot and two-shot of a lone call of one slice: the algorithm's template runs in all threads, its steps stay in registers. The kernel
// of the smallest latency: no program, no jobs, no roles, no shared memory.
//
// Cells, banks and epochs are those of the Window kernel; a call runs on either on all ranks alike (launch.cc).
// 1. A thread reads and writes the same cells of every step, so that input and output may be the same memory.
// 2. Between two rounds all threads meet: the argument for two banks (algo/lane.h) needs it.
// 3. A block has as many threads as a slice has cells, up to kSmallThreads; ranks need not agree on it.
#pragma once

#include <utility>

#include "algo/lane.h"
#include "exec/cuda/cell.cuh"
#include "exec/cuda/element.cuh"
#include "exec/cuda/small.h"
#include "exec/cuda/wait.cuh"

namespace tutti::exec::cuda {

template <DataType kType, ReduceOp kOp>
class SmallLane : public algo::LocalVerbs<SmallLane<kType, kOp>>, public algo::PeerMemoryVerbs<SmallLane<kType, kOp>> {
 public:
  /// `before` is the channel's epoch when the call began.
  __device__ __forceinline__ SmallLane(const SmallLaunch& launch, const Numbers& numbers, int32_t channel, uint64_t before)
      : launch_(launch), numbers_(numbers), channel_(channel), epoch_(before + 1) {}

  __device__ __forceinline__ void run(const algo::Step& s) {
    if (s.round != round_) {
      __syncthreads();
      epoch_ += s.round - round_;
      round_ = s.round;
    }
    if (s.kind == algo::Kind::Store) storeCells(s.src, s.to.rank[0].value, s.reduce);
    if (s.kind == algo::Kind::Load) loadCells(s.from.rank[0].value, s.dst);
    if (s.kind == algo::Kind::LoadReduce) reduceCells(s.dst);
  }

 private:
  static constexpr uint32_t kElementBytes = sizeof(ElementOf<kType>);
  static constexpr int kPeersAtOnce = 4;  ///< ranks whose cells are loaded together before the first is needed

  struct Span {
    std::byte* base;
    uint64_t bytes;
    __device__ __forceinline__ uint64_t cells() const { return (max(bytes, uint64_t{1}) + 7) / 8; }
  };

  __device__ __forceinline__ Span spanOf(algo::ChunkRef chunk) const {
    const algo::Range range = launch_.work.geometry.range(chunk.chunk, channel_, 0);
    std::byte* const base = chunk.buffer == algo::Buffer::In ? const_cast<std::byte*>(launch_.work.in) : launch_.work.out;
    return {base + range.begin * kElementBytes, range.elems * kElementBytes};
  }
  __device__ __forceinline__ arch::Words2* share(int32_t owner, int32_t writer) const {
    return reinterpret_cast<arch::Words2*>(
        launch_.comm.window.share(owner, epoch_, writer, launch_.comm.ranks, channel_ + launch_.work.firstChannel));
  }
  __device__ __forceinline__ uint64_t loadOwn(const Span& from, uint64_t c, bool scales) const {
    const uint64_t word = loadPlain(from.base, 8 * c, from.bytes, kElementBytes);
    return scales && numbers_.hasFactor ? scaleWord<kType>(word, numbers_) : word;
  }

  __device__ __forceinline__ void storeCells(algo::ChunkRef src, int32_t peer, bool scales) {
    if (peer == self()) {  // what a rank stores for itself stays where it is
      own_ = src;
      return;
    }
    const Span from = spanOf(src);
    arch::Words2* const cells = share(peer, self());
    const uint64_t count = from.cells();
#pragma unroll 1
    for (uint64_t c = threadIdx.x; c < count; c += blockDim.x) {
      const uint64_t word = loadOwn(from, c, scales);
      if (!failed_) arch::storeRelaxedSys(cells + c, sealCell(word, epoch_));
    }
    if (epoch_ % kRewriteEvery >= 2 || failed_) return;
#pragma unroll 1
    for (uint64_t c = count + threadIdx.x; c < launch_.comm.window.shareBytes / kCellBytes; c += blockDim.x)
      arch::storeRelaxedSys(cells + c, sealCell(0, epoch_));
  }

  __device__ __forceinline__ void loadCells(int32_t peer, algo::ChunkRef dst) {
    const Span to = spanOf(dst);
    const uint64_t count = to.cells();
#pragma unroll 1
    for (uint64_t c = threadIdx.x; c < count; c += blockDim.x) {
      arch::Words2 cell[1];
      awaitCells(cell, peer, peer + 1, c);
      if (!failed_) storePlain(to.base, 8 * c, dataOf(cell[0]), to.bytes, kElementBytes);
    }
  }

  __device__ __forceinline__ void reduceCells(algo::ChunkRef dst) {
    const Span own = spanOf(own_);
    const Span to = spanOf(dst);
    const uint64_t count = to.cells();
    const int32_t ranks = launch_.comm.ranks;
#pragma unroll 1
    for (uint64_t c = threadIdx.x; c < count; c += blockDim.x) {
      const uint64_t mine = loadOwn(own, c, true);
      WordReduction<kType, kOp> sum;
#pragma unroll 1
      for (int32_t first = 0; first < ranks; first += kPeersAtOnce) {
        arch::Words2 cell[kPeersAtOnce];
        awaitCells(cell, first, ranks, c);
#pragma unroll
        for (int i = 0; i < kPeersAtOnce; ++i) {
          if (first + i >= ranks) break;
          const uint64_t word = first + i == self() ? mine : dataOf(cell[i]);
          if (first + i == 0) {
            sum.begin(word, numbers_);
          } else {
            sum.add(word, numbers_);
          }
        }
      }
      uint64_t word = ranks > 1 ? sum.word(numbers_) : mine;
      if (numbers_.divisor > 1) word = divideWord<kType>(word, numbers_);
      if (!failed_) storePlain(to.base, 8 * c, word, to.bytes, kElementBytes);
    }
  }

  /// Waits for cell `c` of ranks `first` to `first` + kCount - 1, as far as they are below `end` and others than this one.
  template <int kCount>
  __device__ __forceinline__ void awaitCells(arch::Words2 (&cell)[kCount], int32_t first, int32_t end, uint64_t c) {
    if (failed_) return;
    WaitNote note{Waiting::ForCell, self(), first, channel_ + launch_.work.firstChannel, round_};
    failed_ = !waitUntil(launch_.comm.wait, note, epoch_, [&](uint64_t& seen) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (first + i < end && first + i != self()) cell[i] = arch::loadRelaxedSys(share(self(), first + i) + c);
      }
      bool areSealed = true;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (first + i >= end || first + i == self() || isSealed(cell[i], epoch_)) continue;
        areSealed = false;
        note.peer = first + i;
        seen = cell[i].word[0] >> 32;
      }
      return areSealed;
    });
  }

  __device__ __forceinline__ int32_t self() const { return launch_.comm.rank; }

  const SmallLaunch& launch_;
  const Numbers& numbers_;
  const int32_t channel_;
  uint64_t epoch_;  ///< of the current round
  int32_t round_ = 0;
  bool failed_ = false;
  algo::ChunkRef own_;
};

/// Returns how many rounds it has carried out.
template <class Algorithm, class Lane>
__device__ __forceinline__ int32_t runSlice(const SmallLaunch& launch, Lane& lane) {
  algo::LayoutView view;
  view.rank = Rank(launch.comm.rank);
  view.ranks = launch.comm.ranks;
  Algorithm::run(lane, view, 0);
  return Algorithm::kTraits.rounds;
}

template <DataType kType, ReduceOp kOp>
__global__ void __launch_bounds__(kSmallThreads, 1) smallKernel(const __grid_constant__ SmallLaunch launch) {
  const Work& work = launch.work;
  const int32_t channel = static_cast<int32_t>(blockIdx.x) - work.firstBlock;
  if (channel < 0 || channel >= work.geometry.channels) return;
  arch::waitForPrecedingGrids();
  arch::allowNextGrid();
  uint64_t* const word = launch.comm.window.epochs + channel + work.firstChannel;
  const uint64_t before = arch::loadRelaxedSys(word);
  // Before it waits for anybody; by a warp that has the least to do.
  if (channel == 0 && threadIdx.x == blockDim.x - 1) postOnBoards(launch.comm.wait);
  Numbers numbers = launch.numbers;
  if (work.scaling.hasFactor && work.factorSource != nullptr)
    numbers.factor = loadPlainSlowly(static_cast<const std::byte*>(work.factorSource), sizeof(ElementOf<kType>), sizeof(ElementOf<kType>));
  SmallLane<kType, kOp> lane(launch, numbers, channel, before);
  const int32_t rounds =
      work.algorithm == kTwoShot ? runSlice<algo::TwoShotAllReduce>(launch, lane) : runSlice<algo::OneShotAllReduce>(launch, lane);
  __syncthreads();
  if (threadIdx.x == 0) *word = before + static_cast<uint64_t>(rounds);
}

/// The kernels of one operation, in the order of kLoopTypes.
template <ReduceOp kOp>
struct SmallTable {
  const void* function[kNumLoopTypes];
};
template <ReduceOp kOp, int... kPlace>
SmallTable<kOp> makeSmallTable(std::integer_sequence<int, kPlace...>) {
  return {{reinterpret_cast<const void*>(&smallKernel<kLoopTypes[kPlace], kOp>)...}};
}
template <ReduceOp kOp>
const void* smallFunctionOf(int type) {
  static const SmallTable<kOp> table = makeSmallTable<kOp>(std::make_integer_sequence<int, kNumLoopTypes>{});
  return table.function[type];
}

}  // namespace tutti::exec::cuda
