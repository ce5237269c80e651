// A lane that carries out peer-memory verbs with the flag inside the data: one thread block, every thread its own cells.
//
// A store is complete when its cells are, so `arrive` and `await` have nothing to do: `loadReduce` and `load` poll the cells themselves.
// 1. Cell c of a slice is written and read by the same thread of every rank's block; what a rank stores for itself never leaves the
//    input buffer: the thread that stores an output element has read that input element before, so in place is allowed.
// 2. The block stays one sequential program: between two rounds, and before the epoch is put back, all its threads meet.
#pragma once

#include "algo/lane.h"
#include "exec/cuda/element.cuh"
#include "exec/cuda/launch.h"
#include "exec/cuda/wait.cuh"

namespace tutti::exec::cuda {

template <int kThreadsOfBlock>
struct PeerShape {
  static constexpr int kThreads = kThreadsOfBlock;
};

struct PeerShared {};

/// `Reduction` is a WordReduction, `Shape` a PeerShape.
template <class Reduction, class Shape>
class PeerLane : public algo::LocalVerbs<PeerLane<Reduction, Shape>>, public algo::PeerMemoryVerbs<PeerLane<Reduction, Shape>> {
 public:
  using Launch = PeerLaunch;
  using Shared = PeerShared;
  static constexpr int kThreads = Shape::kThreads;

  __device__ __forceinline__ PeerLane(const Launch& launch, Shared&, int32_t channel, int32_t, int32_t)
      : launch_(launch), channel_(channel), epoch_(launch.window.epochs[channel]) {}

  __device__ __forceinline__ void beginSlice(int32_t slice) {
    if (slice > 0) __syncthreads();
    slice_ = slice;
    round_ = 0;
    ++epoch_;
  }

  __device__ __forceinline__ void run(const algo::Step& s) {
    if (s.round != round_) {
      __syncthreads();
      epoch_ += s.round - round_;
      round_ = s.round;
    }
    if (s.kind == algo::Kind::Pipe) copyCells(s.src, s.dst);
    if (s.kind == algo::Kind::Store) storeCells(s.src, s.to.rank[0]);
    if (s.kind == algo::Kind::Load) loadCells(s.from.rank[0], s.dst);
    if (s.kind == algo::Kind::LoadReduce) reduceCells(s.dst);
  }

  __device__ __forceinline__ void finish() {
    __syncthreads();
    if (threadIdx.x == 0) launch_.window.epochs[channel_] = epoch_;
  }

 private:
  using Storage = typename Reduction::Storage;
  using Words2 = arch::Words2;
  static constexpr uint32_t kPerCell = kCellDataBytes / sizeof(Storage);
  static constexpr int kPeersAtOnce = 4;  ///< ranks whose cells are loaded together before the first is needed

  __device__ __forceinline__ void storeCells(algo::ChunkRef src, Rank peer) {
    own_ = src;
    if (peer == self()) return;
    const algo::Range range = rangeOf(src);
    const Storage* from = addressOf(src, range);
    auto* cells = reinterpret_cast<Words2*>(launch_.window.cells(peer.value, bank(), self().value, launch_.call.view.ranks, channel_));
    for (uint32_t c = threadIdx.x; c < cellsOf(range); c += kThreads) arch::storeRelaxedSys(cells + c, seal(loadWord(from, range, c)));
  }

  __device__ __forceinline__ void copyCells(algo::ChunkRef src, algo::ChunkRef dst) {
    const algo::Range from = rangeOf(src);
    const algo::Range to = rangeOf(dst);
    const Storage* in = addressOf(src, from);
    auto* out = const_cast<Storage*>(addressOf(dst, to));
    if (in == out) return;
    for (uint32_t c = threadIdx.x; c < cellsOf(to); c += kThreads) putWord(out, to, c, loadWord(in, from, c));
  }

  __device__ __forceinline__ void loadCells(Rank peer, algo::ChunkRef dst) {
    const algo::Range range = rangeOf(dst);
    auto* out = const_cast<Storage*>(addressOf(dst, range));
    for (uint32_t c = threadIdx.x; c < cellsOf(range); c += kThreads) {
      Words2 cell = arch::loadRelaxedSys(cellOf(peer.value, c));
      const uint64_t word = awaitCell(cell, peer.value, c);
      if (!failed_) putWord(out, range, c, word);
    }
  }

  __device__ __forceinline__ void reduceCells(algo::ChunkRef dst) {
    const algo::Range range = rangeOf(dst);
    const Storage* own = addressOf(own_, rangeOf(own_));
    auto* out = const_cast<Storage*>(addressOf(dst, range));
    for (uint32_t c = threadIdx.x; c < cellsOf(range); c += kThreads) {
      const uint64_t mine = loadWord(own, range, c);
      Reduction sum;
      for (int32_t first = 0; first < launch_.call.view.ranks; first += kPeersAtOnce) addRanks(sum, first, mine, c);
      const bool isMove = launch_.call.view.ranks == 1;
      if (!failed_) putWord(out, range, c, isMove ? mine : sum.word());
    }
  }

  /// Adds the contributions of ranks `first` to `first + kPeersAtOnce - 1` to cell `c`, in rank order.
  __device__ __forceinline__ void addRanks(Reduction& sum, int32_t first, uint64_t mine, uint32_t c) {
    Words2 cell[kPeersAtOnce];
#pragma unroll
    for (int i = 0; i < kPeersAtOnce; ++i) {
      if (isPeer(first + i)) cell[i] = arch::loadRelaxedSys(cellOf(first + i, c));
    }
#pragma unroll
    for (int i = 0; i < kPeersAtOnce; ++i) {
      const int32_t rank = first + i;
      if (rank >= launch_.call.view.ranks) break;
      const uint64_t word = rank == self().value ? mine : awaitCell(cell[i], rank, c);
      if (rank == 0) {
        sum.begin(word);
      } else {
        sum.add(word);
      }
    }
  }

  __device__ __forceinline__ uint64_t awaitCell(Words2& cell, int32_t rank, uint32_t c) {
    if (!isSealed(cell) && !failed_) {
      const WaitNote note{Waiting::ForCell, self().value, rank, channel_};
      failed_ = !waitUntil(launch_.call.wait, note, epoch_, [&](uint64_t& seen) {
        cell = arch::loadRelaxedSys(cellOf(rank, c));
        seen = cell.word[0] >> 32;
        return isSealed(cell);
      });
    }
    return (cell.word[0] & 0xffffffffu) | cell.word[1] << 32;
  }

  __device__ __forceinline__ Words2 seal(uint64_t word) const {
    const uint64_t flag = static_cast<uint64_t>(epoch_) << 32;
    return {{(word & 0xffffffffu) | flag, word >> 32 | flag}};
  }
  __device__ __forceinline__ bool isSealed(const Words2& cell) const {
    return static_cast<uint32_t>(cell.word[0] >> 32) == epoch_ && static_cast<uint32_t>(cell.word[1] >> 32) == epoch_;
  }

  /// The elements of cell `c` of a range; what lies beyond its end is zero.
  static __device__ __forceinline__ uint64_t loadWord(const Storage* from, const algo::Range& range, uint32_t c) {
    const Storage* p = from + uint64_t{c} * kPerCell;
    if (isWhole(p, range, c)) return *reinterpret_cast<const uint64_t*>(p);
    uint64_t word = 0;
    for (uint32_t i = 0; i < kPerCell; ++i) {
      if (uint64_t{c} * kPerCell + i < range.elems) word |= static_cast<uint64_t>(p[i]) << (8 * sizeof(Storage) * i);
    }
    return word;
  }
  static __device__ __forceinline__ void putWord(Storage* to, const algo::Range& range, uint32_t c, uint64_t word) {
    Storage* p = to + uint64_t{c} * kPerCell;
    if (isWhole(p, range, c)) {
      *reinterpret_cast<uint64_t*>(p) = word;
      return;
    }
    for (uint32_t i = 0; i < kPerCell; ++i) {
      if (uint64_t{c} * kPerCell + i < range.elems) p[i] = static_cast<Storage>(word >> (8 * sizeof(Storage) * i));
    }
  }
  static __device__ __forceinline__ bool isWhole(const Storage* p, const algo::Range& range, uint32_t c) {
    return uint64_t{c + 1} * kPerCell <= range.elems && reinterpret_cast<uintptr_t>(p) % kCellDataBytes == 0;
  }

  __device__ __forceinline__ Rank self() const { return launch_.call.view.rank; }
  __device__ __forceinline__ bool isPeer(int32_t rank) const { return rank < launch_.call.view.ranks && rank != self().value; }
  __device__ __forceinline__ uint32_t bank() const { return epoch_ & 1; }
  __device__ __forceinline__ const Words2* cellOf(int32_t rank, uint32_t c) const {
    return reinterpret_cast<const Words2*>(launch_.window.cells(self().value, bank(), rank, launch_.call.view.ranks, channel_)) + c;
  }
  __device__ __forceinline__ algo::Range rangeOf(algo::ChunkRef chunk) const {
    return launch_.call.geometry.range(chunk.chunk, channel_, slice_);
  }
  __device__ __forceinline__ const Storage* addressOf(algo::ChunkRef chunk, const algo::Range& range) const {
    const std::byte* base = chunk.buffer == algo::Buffer::In ? launch_.call.in : launch_.call.out;
    return reinterpret_cast<const Storage*>(base) + range.begin;
  }
  static __device__ __forceinline__ uint32_t cellsOf(const algo::Range& range) {
    const auto cells = static_cast<uint32_t>((range.elems + kPerCell - 1) / kPerCell);
    return cells > 0 ? cells : 1;
  }

  const Launch& launch_;
  int32_t channel_;
  uint32_t epoch_;
  int32_t slice_ = 0;
  uint8_t round_ = 0;
  bool failed_ = false;
  algo::ChunkRef own_;
};

}  // namespace tutti::exec::cuda
