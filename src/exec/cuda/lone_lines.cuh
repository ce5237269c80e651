// Lone calls over windows of lines: 128 bytes hold 120 of data, written by 8 threads in one go ("LL128"). For all but the smallest
// messages, on machines that keep lines in order.
//
// 1. Part p of line l belongs to thread (8 l + p) % blockDim.x in every step; the last part has 8 bytes of data and the flag, which is the
//    round's epoch in 64 bits and never comes again. An empty slice still has one line.
// 2. Loads of windows are a whole warp's, since lines are complete or not as a whole; so all threads of a warp wait together.
#pragma once

#include "exec/cuda/lone_lane.cuh"

namespace tutti::exec::cuda {

template <class Values>
class LoneLines : public LoneLane<LoneLines<Values>, Values> {
  using Base = LoneLane<LoneLines<Values>, Values>;
  using Words2 = arch::Words2;

 public:
  static constexpr Protocol kProtocol = Protocol::Lines;
  using Base::Base;

  __device__ __forceinline__ void copyUnits(const Span& from, const Span& to) {
    const uint32_t whole = min(this->wholeBytesOf(from), this->wholeBytesOf(to));
    forEachBatch<kLinesAtOnce>(from.bytes, whole, [&](uint32_t first, bool isWhole) {
      if (isWhole) {
        Words2 value[kLinesAtOnce];
        loadWhole(value, from.base, first);
        storeWhole(value, to.base, first);
      } else {
#pragma unroll 1
        for (int i = 0; i < kLinesAtOnce; ++i) storePlainPart(loadPlainPart(from, lineOf(first, i)), to, lineOf(first, i));
      }
    });
  }

  __device__ __forceinline__ void storeUnits(const Bundle& bundle) {
#pragma unroll 1
    for (int32_t place = 1; place < this->ranks(); place += kPeers) {
      const typename Base::Group group = this->groupOf(bundle, place, false);
      if (group.isEmpty) continue;
      if (bundle.isSame) {
        storeSame(bundle, group);
      } else {
        storeEach(bundle, group, place);
      }
    }
  }
  __device__ __forceinline__ void storeEmpty(int32_t peer) {
    if (threadIdx.x < kPartsOfLine) storeLinePart(this->windowOf(peer), 0, {}, this->epoch_);
  }

  __device__ __forceinline__ void loadUnits(const Bundle& bundle) {
#pragma unroll 1
    for (int32_t place = 1; place < this->ranks(); place += kPeers) {
      const typename Base::Group group = this->groupOf(bundle, place, true);
      if (group.isEmpty) continue;
      forEachBatch<kLinesOfEach>(group.mostBytes, group.wholeBytes, [&](uint32_t first, bool isWhole) {
        if (isWhole) {
          takeWhole(group, place, first);
        } else {
          takeEach(bundle, place, first);
        }
      });
    }
  }

  /// Warp `peer` calls it.
  __device__ __forceinline__ void awaitFirstUnit(int32_t peer) {
    Words2 value[1];
    awaitParts(value, [&](int) { return this->theirs(peer) + part(); }, [&](int) { return peer; });
  }

  __device__ __forceinline__ void reduceUnits(const Round& round, const Span& own, const Span& to) {
    const uint32_t whole = min(this->wholeBytesOf(own), this->wholeBytesOf(to));
    withFold<Values::kType>(this->numbers_, [&]<class Fold>() {
      forEachBatch<kLinesOfEach>(to.bytes, whole, [&](uint32_t first, bool isWhole) { reduceBatch<Fold>(round, own, to, first, isWhole); });
    });
  }

 private:
  static constexpr int kPeers = Base::kPeersAtOnce;
  static constexpr int kLinesAtOnce = Values::kIsMove ? 4 : 2;  ///< that a thread has a part in, where only one buffer is read
  static constexpr int kLinesOfEach = Values::kIsMove ? 2 : 1;  ///< the same, of each of several peers
  static constexpr uint32_t kPartsOfLine = kLineBytes / sizeof(Words2);
  static constexpr uint32_t kLinesOfWarp = 32 / kPartsOfLine;

  static __device__ __forceinline__ uint32_t part() { return threadIdx.x % kPartsOfLine; }
  static __device__ __forceinline__ bool isFlag() { return part() == kPartsOfLine - 1; }
  static __device__ __forceinline__ uint32_t linesOf(uint64_t bytes) {
    return (max(bytes, uint64_t{1}) + kLineDataBytes - 1) / kLineDataBytes;
  }
  /// From a thread's line of a batch to its next one.
  static __device__ __forceinline__ uint32_t stride() { return blockDim.x / kPartsOfLine; }
  /// The thread's i-th line of a batch whose first line, for its warp, is `first`.
  static __device__ __forceinline__ uint32_t lineOf(uint32_t first, int i) {
    return first + threadIdx.x % 32 / kPartsOfLine + static_cast<uint32_t>(i) * stride();
  }
  /// Calls `body(first, isWhole)` as often for all threads of a warp. `isWhole`: all lines of the warp's batch lie below `wholeBytes`.
  template <int kLines, class Body>
  static __device__ __forceinline__ void forEachBatch(uint32_t bytes, uint32_t wholeBytes, Body&& body) {
    const uint32_t lines = linesOf(bytes);
    const uint32_t wholeLines = wholeBytes / kLineDataBytes;
#pragma unroll 1
    for (uint32_t first = threadIdx.x / 32 * kLinesOfWarp; first < lines; first += kLines * stride())
      body(first, first + (kLines - 1) * stride() + kLinesOfWarp <= wholeLines);
  }

  __device__ __forceinline__ Words2 scaled(Words2 value, bool scales) const {
    return {{this->contribution(value.word[0], scales), this->contribution(value.word[1], scales)}};
  }

  // ---- plain memory ------------------------------------------------------------------------------------------------------

  template <int kLines>
  static __device__ __forceinline__ void loadWhole(Words2 (&value)[kLines], const std::byte* from, uint32_t first) {
    const auto* words = reinterpret_cast<const uint64_t*>(from + lineOf(first, 0) * kLineDataBytes + part() * sizeof(Words2));
    const uint32_t step = stride() * (kLineDataBytes / sizeof(uint64_t));
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      value[i].word[0] = arch::loadWeak(words + static_cast<uint32_t>(i) * step);
      value[i].word[1] = arch::loadWeak(words + static_cast<uint32_t>(i) * step + (isFlag() ? 0 : 1));
    }
  }
  template <int kLines>
  static __device__ __forceinline__ void storeWhole(const Words2 (&value)[kLines], std::byte* to, uint32_t first) {
    auto* words = reinterpret_cast<uint64_t*>(to + lineOf(first, 0) * kLineDataBytes + part() * sizeof(Words2));
    const uint32_t step = stride() * (kLineDataBytes / sizeof(uint64_t));
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      arch::storeWeak(words + static_cast<uint32_t>(i) * step, value[i].word[0]);
      if (!isFlag()) arch::storeWeak(words + static_cast<uint32_t>(i) * step + 1, value[i].word[1]);
    }
  }
  __device__ __forceinline__ Words2 loadPlainPart(const Span& from, uint32_t line) const {
    Words2 value{};
    const uint32_t at = line * static_cast<uint32_t>(kLineDataBytes) + part() * sizeof(Words2);
    value.word[0] = loadPlain(from.base, at, from.bytes, this->elementBytes());
    if (!isFlag()) value.word[1] = loadPlain(from.base, at + 8, from.bytes, this->elementBytes());
    return value;
  }
  __device__ __forceinline__ void storePlainPart(const Words2& value, const Span& to, uint32_t line) const {
    if (this->failed_) return;
    const uint32_t at = line * static_cast<uint32_t>(kLineDataBytes) + part() * sizeof(Words2);
    storePlain(to.base, at, value.word[0], to.bytes, this->elementBytes());
    if (!isFlag()) storePlain(to.base, at + 8, value.word[1], to.bytes, this->elementBytes());
  }

  // ---- sending -----------------------------------------------------------------------------------------------------------

  __device__ __forceinline__ void storeLinePart(Words2* window, uint32_t line, Words2 value, uint64_t epoch) const {
    if (isFlag()) value.word[1] = epoch;
    if (!this->failed_) arch::storeRelaxedSys(window + line * kPartsOfLine + part(), value);
  }

  __device__ __forceinline__ void storeSame(const Bundle& bundle, const typename Base::Group& group) {
    const Span from = this->spanOf(bundle.chunk);
    forEachBatch<kLinesAtOnce>(from.bytes, group.wholeBytes, [&](uint32_t first, bool isWhole) {
      if (isWhole) {
        Words2 value[kLinesAtOnce];
        loadWhole(value, from.base, first);
#pragma unroll
        for (int i = 0; i < kLinesAtOnce; ++i) value[i] = scaled(value[i], bundle.scales);
#pragma unroll
        for (int p = 0; p < kPeers; ++p) {
          if (group.window[p] == nullptr) continue;
          __syncwarp();
#pragma unroll
          for (int i = 0; i < kLinesAtOnce; ++i) storeLinePart(group.window[p], lineOf(first, i), value[i], this->epoch_);
        }
      } else {
#pragma unroll 1
        for (int i = 0; i < kLinesAtOnce; ++i) {
          const uint32_t line = lineOf(first, i);
          const Words2 value = scaled(loadPlainPart(from, line), bundle.scales);
          __syncwarp();
#pragma unroll
          for (int p = 0; p < kPeers; ++p)
            if (group.window[p] != nullptr && line < linesOf(from.bytes)) storeLinePart(group.window[p], line, value, this->epoch_);
        }
      }
    });
  }

  __device__ __forceinline__ void storeEach(const Bundle& bundle, const typename Base::Group& group, int32_t place) {
    forEachBatch<kLinesOfEach>(group.mostBytes, group.wholeBytes, [&](uint32_t first, bool isWhole) {
      if (isWhole) {
        Words2 value[kPeers][kLinesOfEach];
#pragma unroll
        for (int p = 0; p < kPeers; ++p)
          if (group.window[p] != nullptr) loadWhole(value[p], group.base[p], first);
#pragma unroll
        for (int p = 0; p < kPeers; ++p) {
          if (group.window[p] == nullptr) continue;
          __syncwarp();
#pragma unroll
          for (int i = 0; i < kLinesOfEach; ++i)
            storeLinePart(group.window[p], lineOf(first, i), scaled(value[p][i], bundle.scales), this->epoch_);
        }
      } else {
#pragma unroll 1
        for (int i = 0; i < kLinesOfEach; ++i) {
          const uint32_t line = lineOf(first, i);
#pragma unroll 1
          for (int p = place; p < place + kPeers && p < this->ranks(); ++p) {
            const int32_t peer = this->peerAt(p);
            if (!bundle.has(peer)) continue;
            const Span from = this->spanAt(bundle, p);
            const Words2 value = scaled(loadPlainPart(from, line), bundle.scales);
            __syncwarp();
            if (line < linesOf(from.bytes)) storeLinePart(this->windowOf(peer), line, value, this->epoch_);
          }
        }
      }
    });
  }

  // ---- taking ------------------------------------------------------------------------------------------------------------

  __device__ __forceinline__ void takeWhole(const typename Base::Group& group, int32_t place, uint32_t first) {
    Words2 value[kPeers * kLinesOfEach];
    awaitParts(
        value,
        [&](int n) -> const Words2* {
          const Words2* const window = group.window[n / kLinesOfEach];
          return window != nullptr ? window + lineOf(first, n % kLinesOfEach) * kPartsOfLine + part() : nullptr;
        },
        [&](int n) { return this->peerAt(place + n / kLinesOfEach); });
    if (this->failed_) return;
#pragma unroll
    for (int p = 0; p < kPeers; ++p) {
      if (group.window[p] == nullptr) continue;
      Words2 one[kLinesOfEach];
#pragma unroll
      for (int i = 0; i < kLinesOfEach; ++i) one[i] = value[p * kLinesOfEach + i];
      storeWhole(one, group.base[p], first);
    }
  }
  __device__ __forceinline__ void takeEach(const Bundle& bundle, int32_t place, uint32_t first) {
#pragma unroll 1
    for (int i = 0; i < kLinesOfEach; ++i) {
      const uint32_t line = lineOf(first, i);
#pragma unroll 1
      for (int p = 0; p < kPeers && place + p < this->ranks(); ++p) {
        const int32_t peer = this->peerAt(place + p);
        if (!bundle.has(peer)) continue;
        const Span to = this->spanAt(bundle, place + p);
        Words2 value[1];
        awaitParts(
            value, [&](int) { return line < linesOf(to.bytes) ? this->theirs(peer) + line * kPartsOfLine + part() : nullptr; },
            [&](int) { return peer; });
        storePlainPart(value[0], to, line);
      }
    }
  }

  template <class Fold>
  __device__ __forceinline__ void reduceBatch(const Round& round, const Span& own, const Span& to, uint32_t first, bool isWhole) {
    Words2 value[kLinesOfEach];
    if (isWhole) {
      loadWhole(value, own.base, first);
    } else {
#pragma unroll
      for (int i = 0; i < kLinesOfEach; ++i) value[i] = loadPlainPart(own, lineOf(first, i));
    }
#pragma unroll
    for (int i = 0; i < kLinesOfEach; ++i) value[i] = scaled(value[i], true);
    const uint32_t lines = linesOf(to.bytes);
    combine<Fold>(value, first, lines);
    if (this->numbers_.divisor > 1) {
#pragma unroll
      for (int i = 0; i < kLinesOfEach; ++i)
        value[i] = {{Values::divided(value[i].word[0], this->numbers_), Values::divided(value[i].word[1], this->numbers_)}};
    }
    if (this->failed_) return;
    if (round.forwards) {
#pragma unroll 1
      for (int32_t place = 1; place < this->ranks(); ++place) {
        const int32_t peer = this->peerAt(place);
        Words2* const window = this->nextWindowOf(peer);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < kLinesOfEach; ++i)
          if ((round.nextPeers >> peer & 1) != 0 && lineOf(first, i) < lines)
            storeLinePart(window, lineOf(first, i), value[i], this->epoch_ + 1);
      }
    }
    if (isWhole) {
      storeWhole(value, to.base, first);
    } else {
#pragma unroll
      for (int i = 0; i < kLinesOfEach; ++i) storePlainPart(value[i], to, lineOf(first, i));
    }
  }

  /// `value` and the parts of all other ranks, in rank order.
  template <class Fold>
  __device__ __forceinline__ void combine(Words2 (&value)[kLinesOfEach], uint32_t first, uint32_t lines) {
    const int32_t ranks = this->ranks();
    if (ranks == 1) return;
    Fold sum[2 * kLinesOfEach];
#pragma unroll 1
    for (int32_t rank = 0; rank < ranks; rank += kPeers) {
      Words2 theirs[kPeers * kLinesOfEach];
      awaitParts(
          theirs,
          [&](int n) -> const Words2* {
            const int32_t peer = rank + n / kLinesOfEach;
            const uint32_t line = lineOf(first, n % kLinesOfEach);
            return peer < ranks && peer != this->self() && line < lines ? this->theirs(peer) + line * kPartsOfLine + part() : nullptr;
          },
          [&](int n) { return rank + n / kLinesOfEach; });
#pragma unroll
      for (int p = 0; p < kPeers; ++p) {
        if (rank + p >= ranks) break;
#pragma unroll
        for (int w = 0; w < 2 * kLinesOfEach; ++w) {
          const uint64_t word = rank + p == this->self() ? value[w / 2].word[w % 2] : theirs[p * kLinesOfEach + w / 2].word[w % 2];
          if (rank + p == 0) {
            sum[w].begin(word, this->numbers_);
          } else {
            sum[w].add(word, this->numbers_);
          }
        }
      }
    }
#pragma unroll
    for (int w = 0; w < 2 * kLinesOfEach; ++w) value[w / 2].word[w % 2] = sum[w].word(this->numbers_);
  }

  /// Loads the parts at `from(i)`, null for none, and waits until all their lines are complete. `peer(i)` is for reports. All threads of a
  /// warp call it.
  template <int kCount, class From, class Peer>
  __device__ __forceinline__ void awaitParts(Words2 (&value)[kCount], From&& from, Peer&& peer) {
    if (this->failed_) return;
    WaitNote note = this->note(peer(0));
    const uint64_t epoch = this->epoch_;
    this->failed_ = !waitUntilOfWarp(this->launch_.comm.wait, note, epoch, [&](uint64_t& seen) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        value[i] = {};
        if (const Words2* const at = from(i); at != nullptr) value[i] = arch::loadRelaxedSys(at);
      }
      bool areComplete = true;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (!isFlag() || from(i) == nullptr || value[i].word[1] == epoch) continue;
        areComplete = false;
        note.peer = peer(i);
        seen = value[i].word[1];
      }
      return areComplete;
    });
  }
};

}  // namespace tutti::exec::cuda
