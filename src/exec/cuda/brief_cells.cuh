// Brief calls over windows of cells: 16 bytes hold 8 of data. For the smallest messages.
//
// 1. Cell c belongs to thread c % blockDim.x in every step. An empty part still has one cell.
#pragma once

#include "exec/cuda/brief_lane.cuh"
#include "exec/cuda/cell.cuh"

namespace tutti::exec::cuda {

template <class Values, int kPeers>
class BriefCells : public BriefLane<BriefCells<Values, kPeers>, Values, kPeers> {
  using Base = BriefLane<BriefCells<Values, kPeers>, Values, kPeers>;
  friend Base;

 public:
  static constexpr Protocol kProtocol = Protocol::Cells;
  using Base::Base;

 private:
  using Base::bytes_;
  using Base::call_;
  using Base::failed_;
  using Base::has;
  using Base::peerAt;
  using Base::theirs;
  using Base::windowOf;

  __device__ __forceinline__ uint32_t count() const {
    return (max(bytes_, 1u) + static_cast<uint32_t>(kCellDataBytes) - 1) / static_cast<uint32_t>(kCellDataBytes);
  }
  static __device__ __forceinline__ uint32_t placeOf(uint32_t c) { return static_cast<uint32_t>(kCellDataBytes) * c; }
  __device__ __forceinline__ uint64_t loadOwn(uint32_t c) const {
    return this->isWhole(placeOf(c)) ? this->loadWhole(call_.own, placeOf(c)) : this->loadOdd(call_.own, placeOf(c));
  }
  __device__ __forceinline__ void storeResult(uint32_t c, uint64_t word) const {
    if (this->isWhole(placeOf(c))) {
      this->storeWhole(call_.result, placeOf(c), word);
    } else {
      this->storeOdd(call_.result, placeOf(c), word);
    }
  }
  __device__ __forceinline__ void put(int32_t peer, uint32_t c, uint64_t word) const {
    arch::storeRelaxedSys(windowOf(peer, this->epoch()) + c, sealCell(word, this->epoch()));
  }

  /// For the peers from `place` on.
  __device__ __forceinline__ void loadSent(uint64_t (&word)[kPeers], int32_t place, uint32_t c) const {
    if (this->isWhole(placeOf(c))) {
#pragma unroll
      for (int i = 0; i < kPeers; ++i)
        if (has(call_.stores, place + i)) word[i] = this->loadWhole(this->sentTo(peerAt(place + i)), placeOf(c));
    } else if (placeOf(c) < bytes_) {
#pragma unroll 1
      for (int i = kPeers - 1; i >= 0; --i)
        rotate(word, has(call_.stores, place + i) ? this->loadOdd(this->sentTo(peerAt(place + i)), placeOf(c)) : 0);
    }
  }
  __device__ __forceinline__ void scale(uint64_t (&word)[kPeers]) const {
    if constexpr (!Values::kIsMove) {
      if (!call_.numbers.hasFactor) return;
#pragma unroll 1
      for (int i = 0; i < kPeers; ++i) rotate(word, this->scaled(word[kPeers - 1]));
    }
  }
  __device__ __forceinline__ void send() {
    uint64_t word[kPeers] = {};
    if (call_.hasOwn) first_ = loadOwn(threadIdx.x);
    if (call_.stores != 0) loadSent(word, 1, threadIdx.x);
    this->meetEpoch();
    if (call_.stores != 0) {
#pragma unroll 1
      for (int32_t place = 1; place < call_.ranks; place += kPeers) {
#pragma unroll 1
        for (uint32_t c = threadIdx.x; c < count(); c += blockDim.x) {
          if (c != threadIdx.x || place != 1) loadSent(word, place, c);
          scale(word);
#pragma unroll
          for (int i = 0; i < kPeers; ++i)
            if (has(call_.stores, place + i)) put(peerAt(place + i), c, word[i]);
        }
      }
      rewriteRest(call_.stores, count());
    }
    if (call_.empties != 0) sendEmpties();
  }
  __device__ __forceinline__ void sendEmpties() {
    const auto peer = static_cast<int32_t>(threadIdx.x);
    if (peer < call_.ranks && (call_.empties >> peer & 1) != 0) put(peer, 0, 0);
    rewriteRest(call_.empties, 1);
  }
  /// All other cells of the shares, now and then: kRewriteEvery.
  __device__ __forceinline__ void rewriteRest(uint32_t peers, uint32_t count) const {
    if (this->epoch() % kRewriteEvery >= 2) return;
#pragma unroll 1
    for (int32_t peer = 0; peer < call_.ranks; ++peer) {
      if ((peers >> peer & 1) == 0) continue;
#pragma unroll 1
      for (uint32_t c = count + threadIdx.x; c < shareRoom(kProtocol, call_.shareBytes) / kCellBytes; c += blockDim.x) put(peer, c, 0);
    }
  }

  __device__ __forceinline__ void finish() {
    if (call_.hasOwn) finishOwn();
    if (call_.loads != 0) take();
    if (call_.awaits != 0) awaitOthers();
  }
  __device__ __forceinline__ void finishOwn() {
    if constexpr (Values::kIsMove) {
#pragma unroll 1
      for (uint32_t c = threadIdx.x; c < count(); c += blockDim.x)
        storeResult(c, c == threadIdx.x ? first_ : loadOwn(c));
    } else {
      withFold<Values::kType>(call_.numbers, [&]<class Fold>() {
#pragma unroll 1
        for (uint32_t c = threadIdx.x; c < count(); c += blockDim.x) {
          const uint64_t word = combine<Fold>(this->scaled(c == threadIdx.x ? first_ : loadOwn(c)), c);
          if (!failed_) storeResult(c, this->finished(word));
        }
      });
    }
  }
  /// Cell `c` of all ranks and `mine`, in rank order.
  template <class Fold>
  __device__ __forceinline__ uint64_t combine(uint64_t mine, uint32_t c) {
    Fold sum;
    if constexpr (kPeers == 1) {
      arch::Words2 cell[1];
      await(cell, c, [&](int) { return 1 - call_.rank; });
      sum.begin(call_.rank == 0 ? mine : dataOf(cell[0]), call_.numbers);
      sum.add(call_.rank == 0 ? dataOf(cell[0]) : mine, call_.numbers);
    } else {
      if (call_.ranks == 1) return mine;
#pragma unroll 1
      for (int32_t from = 0; from < call_.ranks; from += kPeers) {
        arch::Words2 cell[kPeers];
        await(cell, c, [&](int i) { return from + i < call_.ranks && from + i != call_.rank ? from + i : -1; });
#pragma unroll
        for (int i = 0; i < kPeers; ++i) {
          if (from + i >= call_.ranks) break;
          const uint64_t word = from + i == call_.rank ? mine : dataOf(cell[i]);
          if (from + i == 0) {
            sum.begin(word, call_.numbers);
          } else {
            sum.add(word, call_.numbers);
          }
        }
      }
    }
    return sum.word(call_.numbers);
  }

  __device__ __forceinline__ void take() {
#pragma unroll 1
    for (int32_t place = 1; place < call_.ranks; place += kPeers) {
#pragma unroll 1
      for (uint32_t c = threadIdx.x; c < count(); c += blockDim.x) {
        arch::Words2 cell[kPeers];
        await(cell, c, [&](int i) { return has(call_.loads, place + i) ? peerAt(place + i) : -1; });
        if (failed_) return;
        uint64_t word[kPeers];
#pragma unroll
        for (int i = 0; i < kPeers; ++i) word[i] = dataOf(cell[i]);
        storeTaken(word, place, c);
      }
    }
  }
  __device__ __forceinline__ void storeTaken(uint64_t (&word)[kPeers], int32_t place, uint32_t c) const {
    if (this->isWhole(placeOf(c))) {
#pragma unroll
      for (int i = 0; i < kPeers; ++i)
        if (has(call_.loads, place + i)) this->storeWhole(this->takenFrom(peerAt(place + i)), placeOf(c), word[i]);
    } else {
#pragma unroll 1
      for (int i = kPeers - 1; i >= 0; --i) {
        if (has(call_.loads, place + i)) this->storeOdd(this->takenFrom(peerAt(place + i)), placeOf(c), word[kPeers - 1]);
        rotate(word, 0);
      }
    }
  }
  /// A warp for each.
  __device__ __forceinline__ void awaitOthers() {
#pragma unroll 1
    for (auto peer = static_cast<int32_t>(threadIdx.x / 32); call_.awaits >> peer != 0; peer += static_cast<int32_t>(blockDim.x / 32)) {
      arch::Words2 cell[1];
      if ((call_.awaits >> peer & 1) != 0 && threadIdx.x % 32 == 0) await(cell, 0, [&](int) { return peer; });
    }
  }
  /// Cell `c` of each rank peerOf(i); -1: none.
  template <int kCount, class PeerOf>
  __device__ __forceinline__ void await(arch::Words2 (&cell)[kCount], uint32_t c, PeerOf&& peerOf) {
    if (failed_) return;
    WaitNote note = this->note(peerOf(0));
    failed_ = !waitUntil(call_.wait, note, this->epoch(), [&](uint64_t& seen) {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        if (peerOf(i) >= 0) cell[i] = arch::loadRelaxedSys(theirs(peerOf(i)) + c);
      bool areSealed = true;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (peerOf(i) < 0 || isSealed(cell[i], this->epoch())) continue;
        areSealed = false;
        note.peer = peerOf(i);
        seen = cell[i].word[0] >> 32;
      }
      return areSealed;
    });
  }

  uint64_t first_ = 0;  ///< the thread's first word of what is its own
};

}  // namespace tutti::exec::cuda
