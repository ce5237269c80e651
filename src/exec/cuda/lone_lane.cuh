// The kernels of lone calls over windows: a block carries out its channel's part of all rounds with all threads. No program, no jobs, no
// roles, no shared memory: the smallest latency.
//
// `Derived` says how data lies in a window (lone_cells.cuh, lone_lines.cuh). Banks and epochs are those of the window; cells are also used
// by the Window kernel, so a call runs on either on all ranks alike.
// 1. A thread reads and writes the same elements in every step, so that input and output may be the same memory.
// 2. Between two rounds, and two slices, all threads meet: the argument for two banks (algo/lane.h) needs it between slices, and where
//    chunks differ in length between rounds as well (brief_lane.cuh, 2).
// 3. A result is forwarded one round ahead. A thread that does so has read an element of this round from every peer, all of whose threads
//    had then finished with the round before, so the bank is free.
#pragma once

#include "exec/cuda/element.cuh"
#include "exec/cuda/kernels.h"
#include "exec/cuda/lone.h"
#include "exec/cuda/plain.cuh"
#include "exec/cuda/wait.cuh"

namespace tutti::exec::cuda {

/// Elements that are combined.
template <DataType kElementType>
struct Combined {
  static constexpr bool kIsMove = false;
  static constexpr bool kInHalves = false;
  static constexpr DataType kType = kElementType;
  static __device__ __forceinline__ uint32_t elementBytes(const Numbers&) { return sizeof(ElementOf<kElementType>); }
  static __device__ __forceinline__ uint64_t scaled(uint64_t word, const Numbers& numbers) {
    return scaleWord<kElementType>(word, numbers);
  }
  static __device__ __forceinline__ uint64_t divided(uint64_t word, const Numbers& numbers) {
    return divideWord<kElementType>(word, numbers);
  }
};
/// Elements of which only the size matters.
struct Moved {
  static constexpr bool kIsMove = true;
  static constexpr bool kInHalves = false;
  static __device__ __forceinline__ uint32_t elementBytes(const Numbers& numbers) { return numbers.elementBytes; }
};
/// Aligned to halves of words, of which all chunks have whole numbers.
struct MovedHalves : Moved {
  static constexpr bool kInHalves = true;
};

/// The part of a chunk that a channel's slice holds. It fits into a window's share.
struct Span {
  std::byte* base;
  uint32_t bytes;
};

template <class Derived, class Values>
class LoneLane {
 public:
  __device__ __forceinline__ LoneLane(const LoneLaunch& launch, const Numbers& numbers, int32_t channel)
      : launch_(launch), numbers_(numbers), channel_(channel) {}

  /// All slices.
  __device__ __forceinline__ void run() {
    uint64_t* const word = launch_.comm.window.epochs + pipeChannel();
    epoch_ = arch::loadRelaxedSys(word);
    const int32_t slices = launch_.work.geometry.slices;
#pragma unroll 1
    for (slice_ = 0; slice_ < slices; ++slice_) {
#pragma unroll 1
      for (round_ = 0; round_ < launch_.rounds.count; ++round_) {
        enterRound();
        runRound(launch_.rounds.round[round_]);
        __syncthreads();
      }
    }
    if (threadIdx.x == 0) *word = epoch_;
  }

 protected:
  static constexpr int kPeersAtOnce = 4;  ///< ranks whose elements are loaded together before the first is needed

  __device__ __forceinline__ Span spanOf(algo::ChunkRef chunk) const {
    const algo::Range range = launch_.work.geometry.range(chunk.chunk, channel_, slice_);
    std::byte* const base = chunk.buffer == algo::Buffer::In ? const_cast<std::byte*>(launch_.work.in) : launch_.work.out;
    return {base + range.begin * elementBytes(), static_cast<uint32_t>(range.elems) * elementBytes()};
  }
  /// Where `peer` finds what this rank stores for it in this round, and in the next one.
  __device__ __forceinline__ arch::Words2* windowOf(int32_t peer) const {
    return reinterpret_cast<arch::Words2*>(launch_.comm.window.base[peer] + ownShare_ +
                                           bytesBefore(launch_.comm.window.storedPages[peer], epoch_));
  }
  __device__ __forceinline__ arch::Words2* nextWindowOf(int32_t peer) const {
    return reinterpret_cast<arch::Words2*>(launch_.comm.window.base[peer] + ownNextShare_ +
                                           bytesBefore(launch_.comm.window.storedPages[peer], epoch_ + 1));
  }
  /// What `peer` stores for this rank in this round.
  __device__ __forceinline__ const arch::Words2* theirs(int32_t peer) const {
    return reinterpret_cast<const arch::Words2*>(firstShare_ + static_cast<uint64_t>(peer) * launch_.comm.window.shareBytes +
                                                 bytesBefore(launch_.comm.window.takenPages[peer], epoch_));
  }
  __device__ __forceinline__ uint64_t bytesBefore(const SharePages& pages, uint64_t epoch) const {
    return Derived::kProtocol == Protocol::Cells ? pages.bytesBefore(epoch, pipeChannel()) : 0;
  }
  __device__ __forceinline__ uint64_t contribution(uint64_t word, bool scales) const {
    if constexpr (!Values::kIsMove) {
      if (scales && numbers_.hasFactor) return Values::scaled(word, numbers_);
    }
    return word;
  }
  /// The peers after this rank, from 1 on; no two ranks have the same one at a place.
  __device__ __forceinline__ int32_t peerAt(int32_t place) const {
    const int32_t peer = self() + place;
    return peer < ranks() ? peer : peer - ranks();
  }
  __device__ __forceinline__ WaitNote note(int32_t peer) const { return {Waiting::ForCell, self(), peer, pipeChannel(), round_}; }
  __device__ __forceinline__ int32_t self() const { return launch_.comm.rank; }
  __device__ __forceinline__ int32_t ranks() const { return launch_.comm.ranks; }
  __device__ __forceinline__ int32_t pipeChannel() const { return channel_ + launch_.work.firstChannel; }
  __device__ __forceinline__ uint32_t elementBytes() const { return Values::elementBytes(numbers_); }

  const LoneLaunch& launch_;
  const Numbers& numbers_;
  const int32_t channel_;
  int32_t slice_ = 0;
  int32_t round_ = 0;
  uint64_t epoch_ = 0;  ///< of the current round
  bool failed_ = false;

  /// Peers that something is done with at once, and their parts of the bundle; chunks of different ranks may differ in length.
  struct Group {
    arch::Words2* window[kPeersAtOnce];  ///< null: none
    std::byte* base[kPeersAtOnce];
    bool isEmpty = true;
    uint32_t mostBytes = 0;
    uint32_t wholeBytes = ~uint32_t{0};  ///< of each: up to here they may be accessed as aligned words
  };
  __device__ __forceinline__ Group groupOf(const Bundle& bundle, int32_t place, bool takes) const {
    Group group;
#pragma unroll
    for (int p = 0; p < kPeersAtOnce; ++p) {
      group.window[p] = nullptr;
      group.base[p] = nullptr;
      if (place + p >= ranks()) continue;
      const int32_t peer = peerAt(place + p);
      if (!bundle.has(peer)) continue;
      group.window[p] = takes ? const_cast<arch::Words2*>(theirs(peer)) : windowOf(peer);
      const Span span = spanOf(bundle.of(peer));
      group.base[p] = span.base;
      group.isEmpty = false;
      group.mostBytes = max(group.mostBytes, span.bytes);
      group.wholeBytes = min(group.wholeBytes, wholeBytesOf(span));
    }
    return group;
  }
  /// Again where chunks may differ in length: what is at `place` of a bundle.
  __device__ __forceinline__ Span spanAt(const Bundle& bundle, int32_t place) const { return spanOf(bundle.of(peerAt(place))); }
  static __device__ __forceinline__ uint32_t wholeBytesOf(const Span& span) {
    return reinterpret_cast<uintptr_t>(span.base) % sizeof(uint64_t) == 0 ? span.bytes : 0;
  }

 private:
  __device__ __forceinline__ Derived& derived() { return *static_cast<Derived*>(this); }

  __device__ __forceinline__ void enterRound() {
    ++epoch_;
    const WindowView& window = launch_.comm.window;
    const uint64_t ofChannel = window.shareBytes * static_cast<uint64_t>(ranks());
    const uint64_t ofBank = ofChannel * static_cast<uint64_t>(window.channels);
    const uint64_t channel = ofChannel * static_cast<uint64_t>(pipeChannel());
    const uint64_t own = window.shareBytes * static_cast<uint64_t>(self());
    const uint64_t bank = (epoch_ & 1) * ofBank;
    firstShare_ = window.base[self()] + bank + channel;
    ownShare_ = bank + channel + own;
    ownNextShare_ = ofBank - bank + channel + own;
  }
  __device__ __forceinline__ void runRound(const Round& round) {
    if (round.stores.peers != 0) derived().storeUnits(round.stores);
#pragma unroll 1
    for (int32_t peer = 0; round.empties >> peer != 0; ++peer)
      if ((round.empties >> peer & 1) != 0) derived().storeEmpty(peer);
    if (round.hasCopy) {
      const Span from = spanOf(round.copyFrom);
      const Span to = spanOf(round.copyTo);
      if (from.base != to.base) derived().copyUnits(from, to);
    }
    if constexpr (!Values::kIsMove) {
      if (round.combines) derived().reduceUnits(round, spanOf(round.own), spanOf(round.result));
    }
    if (round.loads.peers != 0) derived().loadUnits(round.loads);
    // A warp for each of the others; kMaxLocalRanks may be more than there are.
#pragma unroll 1
    for (auto peer = static_cast<int32_t>(threadIdx.x / 32); round.awaits >> peer != 0; peer += static_cast<int32_t>(blockDim.x / 32))
      if ((round.awaits >> peer & 1) != 0) derived().awaitFirstUnit(peer);
  }

  // The window's layout (window.h), worked out once a round.
  const std::byte* firstShare_ = nullptr;
  uint64_t ownShare_ = 0;
  uint64_t ownNextShare_ = 0;
};

/// Calls `combine.template operator()<Fold>()` with the WordReduction of the work's operation.
template <DataType kType, class Combine>
__device__ __forceinline__ void withFold(const Numbers& numbers, Combine&& combine) {
  switch (numbers.loop % kNumLoopOps) {
    case 0: combine.template operator()<WordReduction<kType, kLoopOps[0]>>(); break;
    case 1: combine.template operator()<WordReduction<kType, kLoopOps[1]>>(); break;
    default: combine.template operator()<WordReduction<kType, kLoopOps[2]>>(); break;
  }
}

template <class Lane>
__global__ void __launch_bounds__(mostLoneThreads(Lane::kProtocol), 1) loneKernel(const __grid_constant__ LoneLaunch launch) {
  const Work& work = launch.work;
  const int32_t channel = static_cast<int32_t>(blockIdx.x) - work.firstBlock;
  if (channel < 0 || channel >= work.geometry.channels) return;
  arch::waitForPrecedingGrids();
  if (gridDim.x <= kMostEarlyBlocks) arch::allowNextGrid();
  // Before it waits for anybody; by a warp that has the least to do.
  if (channel == 0 && threadIdx.x == blockDim.x - 1) postOnBoards(launch.comm.wait);
  Numbers numbers = launch.numbers;
  if (work.scaling.hasFactor && work.factorSource != nullptr)
    numbers.factor = loadPlainSlowly(static_cast<const std::byte*>(work.factorSource), numbers.elementBytes, numbers.elementBytes);
  Lane(launch, numbers, channel).run();
}

}  // namespace tutti::exec::cuda
