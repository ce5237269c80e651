// Brief calls over windows of lines: 128 bytes hold 120 of data, written by 8 threads in one go. For all but the smallest messages, on
// machines that keep lines in order.
//
// 1. Part p of line l belongs to thread (8 l + p) % blockDim.x in every step; the last part has 8 bytes of data and the flag, which is the
//    round's epoch in 64 bits and never comes again. An empty part still has one line.
// 2. Lines are complete or not as a whole, so all threads of a warp store, load and wait together.
// 3. A thread has parts of kLines lines in flight, of each peer.
#pragma once

#include "exec/cuda/brief_lane.cuh"

namespace tutti::exec::cuda {

template <class Values, int kPeers>
class BriefLines : public BriefLane<BriefLines<Values, kPeers>, Values, kPeers> {
  using Base = BriefLane<BriefLines<Values, kPeers>, Values, kPeers>;
  friend Base;
  using Words2 = arch::Words2;

 public:
  static constexpr Protocol kProtocol = Protocol::Lines;
  using Base::Base;

 private:
  using Base::bytes_;
  using Base::call_;
  using Base::failed_;
  using Base::has;
  using Base::peerAt;

  static constexpr int kLines = kPeers == 1 ? 4 : Values::kIsMove ? 2 : 1;
  static constexpr uint32_t kData = static_cast<uint32_t>(kLineDataBytes);
  static constexpr uint32_t kParts = static_cast<uint32_t>(kLineBytes / sizeof(Words2));
  static constexpr uint32_t kLinesOfWarp = 32 / kParts;
  static constexpr int kWords = 2 * kLines;
  using Batch = uint64_t[kWords];  ///< words 2 i and 2 i + 1 are the thread's part of its i-th line

  __device__ __forceinline__ uint32_t count() const { return (max(bytes_, 1u) + kData - 1) / kData; }
  static __device__ __forceinline__ uint32_t part() { return threadIdx.x % kParts; }
  static __device__ __forceinline__ bool isFlag() { return part() == kParts - 1; }
  static __device__ __forceinline__ uint32_t stride() { return blockDim.x / kParts; }
  /// The thread's i-th line of a batch whose first line, for its warp, is `first`.
  static __device__ __forceinline__ uint32_t lineOf(uint32_t first, int i) {
    return first + threadIdx.x % 32 / kParts + static_cast<uint32_t>(i) * stride();
  }
  /// Calls body(first) as often for all threads of a warp.
  template <class Body>
  __device__ __forceinline__ void forEachBatch(Body&& body) const {
#pragma unroll 1
    for (uint32_t first = threadIdx.x / 32 * kLinesOfWarp; first < count(); first += kLines * stride()) body(first);
  }

  // ---- plain memory ------------------------------------------------------------------------------------------------------

  /// Whether all words of the slice are whole and aligned.
  __device__ __forceinline__ bool isAllWhole() const { return this->wholeBytes_ != 0 && bytes_ % sizeof(uint64_t) == 0; }
  static __device__ __forceinline__ uint32_t placeOf(uint32_t first, int i) {
    return lineOf(first, i) * kData + part() * static_cast<uint32_t>(sizeof(Words2));
  }
  __device__ __forceinline__ void loadBatch(Batch& value, const std::byte* chunk, uint32_t first) const {
    if (isAllWhole()) {
      const auto* words = reinterpret_cast<const uint64_t*>(chunk + this->offset_ + placeOf(first, 0));
      const uint32_t step = stride() * (kData / sizeof(uint64_t));
#pragma unroll
      for (int i = 0; i < kLines; ++i) {
        const uint32_t at = placeOf(first, i);
        value[2 * i] = value[2 * i + 1] = 0;
        if (at < bytes_) value[2 * i] = arch::loadWeak(words + static_cast<uint32_t>(i) * step);
        if (at + 8 < bytes_ && !isFlag()) value[2 * i + 1] = arch::loadWeak(words + static_cast<uint32_t>(i) * step + 1);
      }
    } else {
#pragma unroll 1
      for (int w = kWords - 1; w >= 0; --w)
        rotate(value, w % 2 != 0 && isFlag() ? 0 : this->loadOdd(chunk, placeOf(first, w / 2) + 8 * (w % 2)));
    }
  }
  __device__ __forceinline__ void storeBatch(Batch& value, std::byte* chunk, uint32_t first) const {
    if (failed_) return;
    if (isAllWhole()) {
      auto* words = reinterpret_cast<uint64_t*>(chunk + this->offset_ + placeOf(first, 0));
      const uint32_t step = stride() * (kData / sizeof(uint64_t));
#pragma unroll
      for (int i = 0; i < kLines; ++i) {
        const uint32_t at = placeOf(first, i);
        if (at < bytes_) arch::storeWeak(words + static_cast<uint32_t>(i) * step, value[2 * i]);
        if (at + 8 < bytes_ && !isFlag()) arch::storeWeak(words + static_cast<uint32_t>(i) * step + 1, value[2 * i + 1]);
      }
    } else {
#pragma unroll 1
      for (int w = kWords - 1; w >= 0; --w) {
        if (w % 2 == 0 || !isFlag()) this->storeOdd(chunk, placeOf(first, w / 2) + 8 * (w % 2), value[kWords - 1]);
        rotate(value, 0);
      }
    }
  }
  template <class Change>
  static __device__ __forceinline__ void changeRarely(Batch& value, Change&& change) {
#pragma unroll 1
    for (int w = 0; w < kWords; ++w) rotate(value, change(value[kWords - 1]));
  }
  __device__ __forceinline__ void scale(Batch& value) const {
    if constexpr (!Values::kIsMove) {
      if (call_.numbers.hasFactor) changeRarely(value, [&](uint64_t word) { return this->scaled(word); });
    }
  }

  // ---- sending -----------------------------------------------------------------------------------------------------------

  __device__ __forceinline__ void put(int32_t peer, const Batch& value, uint32_t first, uint64_t epoch) const {
    Words2* const window = this->windowOf(peer, epoch) + part();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      const Words2 words{{value[2 * i], isFlag() ? epoch : value[2 * i + 1]}};
      if (lineOf(first, i) < count()) arch::storeRelaxedSys(window + lineOf(first, i) * kParts, words);
    }
  }
  __device__ __forceinline__ void send() {
    if (call_.stores != 0) sendAll();
    this->meetEpoch();
    if (call_.empties != 0) sendEmpties();
  }
  __device__ __forceinline__ void sendAll() {
#pragma unroll 1
    for (int32_t place = 1; place < call_.ranks; place += kPeers) {
      forEachBatch([&](uint32_t first) {
        Batch value[kPeers];
        if (call_.sentStride == 0) {
          loadBatch(value[0], call_.sent, first);
          this->meetEpoch();
          scale(value[0]);
#pragma unroll
          for (int i = 0; i < kPeers; ++i)
            if (has(call_.stores, place + i)) put(peerAt(place + i), value[0], first, this->epoch());
        } else {
#pragma unroll
          for (int i = 0; i < kPeers; ++i)
            if (has(call_.stores, place + i)) loadBatch(value[i], this->sentTo(peerAt(place + i)), first);
          this->meetEpoch();
#pragma unroll
          for (int i = 0; i < kPeers; ++i) {
            if (!has(call_.stores, place + i)) continue;
            scale(value[i]);
            put(peerAt(place + i), value[i], first, this->epoch());
          }
        }
      });
    }
  }
  __device__ __forceinline__ void sendEmpties() const {
    const auto peer = static_cast<int32_t>(threadIdx.x / kParts);
    if (peer < call_.ranks && (call_.empties >> peer & 1) != 0)
      arch::storeRelaxedSys(this->windowOf(peer, this->epoch()) + part(), Words2{{0, isFlag() ? this->epoch() : 0}});
  }

  // ---- taking ------------------------------------------------------------------------------------------------------------

  __device__ __forceinline__ void finish() {
    if (call_.hasOwn) finishOwn();
    if (call_.forwards != 0) this->enterNextRound();
    if (call_.loads != 0) take();
    if (call_.awaits != 0) awaitOthers();
  }
  __device__ __forceinline__ void finishOwn() {
    if constexpr (Values::kIsMove) {
      forEachBatch([&](uint32_t first) {
        Batch value;
        loadBatch(value, call_.own, first);
        storeBatch(value, call_.result, first);
      });
    } else {
      withFold<Values::kType>(call_.numbers, [&]<class Fold>() {
        forEachBatch([&](uint32_t first) {
          Batch value;
          loadBatch(value, call_.own, first);
          scale(value);
          combine<Fold>(value, first);
          if (call_.numbers.divisor > 1) changeRarely(value, [&](uint64_t word) { return this->finished(word); });
          if (call_.forwards != 0) forward(value, first);
          storeBatch(value, call_.result, first);
        });
      });
    }
  }
  __device__ __forceinline__ void forward(const Batch& value, uint32_t first) const {
    if (failed_) return;
#pragma unroll 1
    for (int32_t place = 1; place < call_.ranks; ++place)
      if (has(call_.forwards, place)) put(peerAt(place), value, first, this->epoch() + 1);
  }
  /// `value` and the lines of all other ranks, in rank order.
  template <class Fold>
  __device__ __forceinline__ void combine(Batch& value, uint32_t first) {
    Fold sum[kWords];
    if constexpr (kPeers == 1) {
      Batch theirs[1];
      await(theirs, first, [&](int) { return 1 - call_.rank; });
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        sum[w].begin(call_.rank == 0 ? value[w] : theirs[0][w], call_.numbers);
        sum[w].add(call_.rank == 0 ? theirs[0][w] : value[w], call_.numbers);
      }
    } else {
      if (call_.ranks == 1) return;
#pragma unroll 1
      for (int32_t from = 0; from < call_.ranks; from += kPeers) {
        Batch theirs[kPeers];
        await(theirs, first, [&](int i) { return from + i < call_.ranks && from + i != call_.rank ? from + i : -1; });
#pragma unroll
        for (int i = 0; i < kPeers; ++i) {
          if (from + i >= call_.ranks) break;
#pragma unroll
          for (int w = 0; w < kWords; ++w) {
            const uint64_t word = from + i == call_.rank ? value[w] : theirs[i][w];
            if (from + i == 0) {
              sum[w].begin(word, call_.numbers);
            } else {
              sum[w].add(word, call_.numbers);
            }
          }
        }
      }
    }
#pragma unroll
    for (int w = 0; w < kWords; ++w) value[w] = sum[w].word(call_.numbers);
  }

  __device__ __forceinline__ void take() {
#pragma unroll 1
    for (int32_t place = 1; place < call_.ranks; place += kPeers) {
      forEachBatch([&](uint32_t first) {
        Batch value[kPeers];
        await(value, first, [&](int i) { return has(call_.loads, place + i) ? peerAt(place + i) : -1; }, call_.forwards != 0 ? 1 : 0);
#pragma unroll
        for (int i = 0; i < kPeers; ++i)
          if (has(call_.loads, place + i)) storeBatch(value[i], this->takenFrom(peerAt(place + i)), first);
      });
    }
  }
  /// A warp for each.
  __device__ __forceinline__ void awaitOthers() {
#pragma unroll 1
    for (auto peer = static_cast<int32_t>(threadIdx.x / 32); call_.awaits >> peer != 0; peer += static_cast<int32_t>(blockDim.x / 32)) {
      if ((call_.awaits >> peer & 1) == 0) continue;
      const Words2* const at = this->theirs(peer) + part();
      failed_ = failed_ || !waitUntilOfWarp(call_.wait, this->note(peer), this->epoch(), [&](uint64_t& seen) {
                  seen = arch::loadRelaxedSys(at).word[1];
                  return !isFlag() || seen == this->epoch();
                });
    }
  }
  /// The batch of each rank peerOf(i); -1: none.
  template <int kCount, class PeerOf>
  __device__ __forceinline__ void await(Batch (&value)[kCount], uint32_t first, PeerOf&& peerOf, int32_t round = 0) {
    if (failed_) return;
    WaitNote note = this->note(peerOf(0), round);
    failed_ = !waitUntilOfWarp(call_.wait, note, this->epoch(), [&](uint64_t& seen) {
#pragma unroll
      for (int p = 0; p < kCount; ++p) {
        const Words2* const at = this->theirs(max(peerOf(p), 0)) + part();
#pragma unroll
        for (int i = 0; i < kLines; ++i) {
          Words2 words{};
          if (peerOf(p) >= 0 && lineOf(first, i) < count()) words = arch::loadRelaxedSys(at + lineOf(first, i) * kParts);
          value[p][2 * i] = words.word[0];
          value[p][2 * i + 1] = words.word[1];
        }
      }
      bool areComplete = true;
#pragma unroll
      for (int p = 0; p < kCount; ++p) {
#pragma unroll
        for (int i = 0; i < kLines; ++i) {
          if (!isFlag() || peerOf(p) < 0 || lineOf(first, i) >= count() || value[p][2 * i + 1] == this->epoch()) continue;
          areComplete = false;
          note.peer = peerOf(p);
          seen = value[p][2 * i + 1];
        }
      }
      return areComplete;
    });
  }
};

}  // namespace tutti::exec::cuda
