// Lone calls over windows of cells: 16 bytes hold 8 of data. For the smallest messages.
//
// 1. Cell c belongs to thread c % blockDim.x in every step. An empty slice still has one cell.
#pragma once

#include "exec/cuda/cell.cuh"
#include "exec/cuda/lone_lane.cuh"

namespace tutti::exec::cuda {

template <class Values>
class LoneCells : public LoneLane<LoneCells<Values>, Values> {
  using Base = LoneLane<LoneCells<Values>, Values>;

 public:
  static constexpr Protocol kProtocol = Protocol::Cells;
  using Base::Base;

  __device__ __forceinline__ void copyUnits(const Span& from, const Span& to) {
#pragma unroll 1
    for (uint32_t c = threadIdx.x; c < cellsOf(from.bytes); c += blockDim.x) storeWord(to, c, loadWord(from, c));
  }

  __device__ __forceinline__ void storeUnits(const Bundle& bundle) {
#pragma unroll 1
    for (int32_t place = 1; place < this->ranks(); place += kPeers) {
      const typename Base::Group group = this->groupOf(bundle, place, false);
      if (group.isEmpty) continue;
      Span spans[kPeers];
      spansOf(bundle, place, group, spans);
      const uint32_t most = cellsOf(group.mostBytes);
#pragma unroll 1
      for (uint32_t c = threadIdx.x; c < most; c += blockDim.x) {
        uint64_t word[kPeers] = {};
        if (bundle.isSame) {
          word[0] = loadWord(this->spanOf(bundle.chunk), c);
#pragma unroll
          for (int p = 1; p < kPeers; ++p) word[p] = word[0];
        } else {
#pragma unroll
          for (int p = 0; p < kPeers; ++p)
            if (group.window[p] != nullptr) word[p] = loadWord(spans[p], c);
        }
#pragma unroll
        for (int p = 0; p < kPeers; ++p)
          if (group.window[p] != nullptr && c < cellsOf(spans[p].bytes))
            storeCell(group.window[p], c, this->contribution(word[p], bundle.scales), this->epoch_);
      }
#pragma unroll
      for (int p = 0; p < kPeers; ++p)
        if (group.window[p] != nullptr) rewriteRest(group.window[p], cellsOf(spans[p].bytes), this->epoch_);
    }
  }
  __device__ __forceinline__ void storeEmpty(int32_t peer) {
    arch::Words2* const cells = this->windowOf(peer);
    if (threadIdx.x == 0) storeCell(cells, 0, 0, this->epoch_);
    rewriteRest(cells, 1, this->epoch_);
  }

  __device__ __forceinline__ void loadUnits(const Bundle& bundle) {
#pragma unroll 1
    for (int32_t place = 1; place < this->ranks(); place += kPeers) {
      const typename Base::Group group = this->groupOf(bundle, place, true);
      if (group.isEmpty) continue;
      Span spans[kPeers];
      spansOf(bundle, place, group, spans);
      const uint32_t most = cellsOf(group.mostBytes);
#pragma unroll 1
      for (uint32_t c = threadIdx.x; c < most; c += blockDim.x) {
        arch::Words2 cell[kPeers];
        const arch::Words2* from[kPeers];
#pragma unroll
        for (int p = 0; p < kPeers; ++p)
          from[p] = group.window[p] != nullptr && c < cellsOf(spans[p].bytes) ? group.window[p] + c : nullptr;
        awaitCells(cell, from, [&](int p) { return this->peerAt(place + p); });
#pragma unroll
        for (int p = 0; p < kPeers; ++p)
          if (from[p] != nullptr && !this->failed_) storeWord(spans[p], c, dataOf(cell[p]));
      }
    }
  }

  /// Warp `peer` calls it.
  __device__ __forceinline__ void awaitFirstUnit(int32_t peer) {
    arch::Words2 cell[1];
    const arch::Words2* const from[1] = {this->theirs(peer)};
    if (threadIdx.x % 32 == 0) awaitCells(cell, from, [&](int) { return peer; });
  }

  __device__ __forceinline__ void reduceUnits(const Round& round, const Span& own, const Span& to) {
    withFold<Values::kType>(this->numbers_, [&]<class Fold>() { reduceWith<Fold>(round, own, to); });
  }

 private:
  template <class Fold>
  __device__ __forceinline__ void reduceWith(const Round& round, const Span& own, const Span& to) {
    const uint32_t count = cellsOf(to.bytes);
#pragma unroll 1
    for (uint32_t c = threadIdx.x; c < count; c += blockDim.x) {
      uint64_t word = combine<Fold>(this->contribution(loadWord(own, c), true), c);
      if (this->numbers_.divisor > 1) word = Values::divided(word, this->numbers_);
      if (this->failed_) continue;
      storeWord(to, c, word);
      if (round.forwards) forward(round.nextPeers, c, word);
    }
    for (int32_t peer = 0; round.nextPeers >> peer != 0; ++peer)
      if ((round.nextPeers >> peer & 1) != 0) rewriteRest(this->nextWindowOf(peer), count, this->epoch_ + 1);
  }

  static constexpr int kPeers = Base::kPeersAtOnce;

  static __device__ __forceinline__ uint32_t cellsOf(uint32_t bytes) { return (max(bytes, 1u) + 7u) / 8u; }
  __device__ __forceinline__ void spansOf(const Bundle& bundle, int32_t place, const typename Base::Group& group,
                                          Span (&spans)[kPeers]) const {
#pragma unroll
    for (int p = 0; p < kPeers; ++p) spans[p] = group.window[p] != nullptr ? this->spanAt(bundle, place + p) : Span{};
  }
  __device__ __forceinline__ uint64_t loadWord(const Span& from, uint32_t c) const {
    return loadPlain(from.base, kCellDataBytes * c, from.bytes, this->elementBytes());
  }
  __device__ __forceinline__ void storeWord(const Span& to, uint32_t c, uint64_t word) const {
    storePlain(to.base, kCellDataBytes * c, word, to.bytes, this->elementBytes());
  }
  __device__ __forceinline__ void storeCell(arch::Words2* cells, uint32_t c, uint64_t word, uint64_t epoch) const {
    if (!this->failed_) arch::storeRelaxedSys(cells + c, sealCell(word, epoch));
  }
  /// All other cells of the share, now and then: kRewriteEvery.
  __device__ __forceinline__ void rewriteRest(arch::Words2* cells, uint32_t count, uint64_t epoch) const {
    if (epoch % kRewriteEvery >= 2) return;
#pragma unroll 1
    for (uint32_t c = count + threadIdx.x; c < shareRoom(kProtocol, this->launch_.comm.window.shareBytes) / kCellBytes;
         c += blockDim.x)
      storeCell(cells, c, 0, epoch);
  }
  __device__ __forceinline__ void forward(uint32_t peers, uint32_t c, uint64_t word) {
#pragma unroll 1
    for (int32_t step = 1; step < this->ranks(); ++step) {
      const int32_t peer = this->peerAt(step);
      if ((peers >> peer & 1) != 0) storeCell(this->nextWindowOf(peer), c, word, this->epoch_ + 1);
    }
  }

  /// Cell `c` of all ranks and `mine`, in rank order.
  template <class Fold>
  __device__ __forceinline__ uint64_t combine(uint64_t mine, uint32_t c) {
    const int32_t ranks = this->ranks();
    Fold sum;
#pragma unroll 1
    for (int32_t first = 0; first < ranks; first += kPeers) {
      arch::Words2 cell[kPeers];
      const arch::Words2* from[kPeers];
#pragma unroll
      for (int i = 0; i < kPeers; ++i)
        from[i] = first + i < ranks && first + i != this->self() ? this->theirs(first + i) + c : nullptr;
      awaitCells(cell, from, [&](int i) { return first + i; });
#pragma unroll
      for (int i = 0; i < kPeers; ++i) {
        if (first + i >= ranks) break;
        const uint64_t word = first + i == this->self() ? mine : dataOf(cell[i]);
        if (first + i == 0) {
          sum.begin(word, this->numbers_);
        } else {
          sum.add(word, this->numbers_);
        }
      }
    }
    return ranks > 1 ? sum.word(this->numbers_) : mine;
  }

  /// Waits for the cells at `from`, null for none. `peer(i)` is for reports.
  template <int kCount, class Peer>
  __device__ __forceinline__ void awaitCells(arch::Words2 (&cell)[kCount], const arch::Words2* const (&from)[kCount], Peer&& peer) {
    if (this->failed_) return;
    WaitNote note = this->note(peer(0));
    const uint64_t epoch = this->epoch_;
    this->failed_ = !waitUntil(this->launch_.comm.wait, note, epoch, [&](uint64_t& seen) {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        if (from[i] != nullptr) cell[i] = arch::loadRelaxedSys(from[i]);
      bool areSealed = true;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (from[i] == nullptr || isSealed(cell[i], epoch)) continue;
        areSealed = false;
        note.peer = peer(i);
        seen = cell[i].word[0] >> 32;
      }
      return areSealed;
    });
  }
};

}  // namespace tutti::exec::cuda
