// What the kernels of brief calls (brief.h) share. `BriefCells` and `BriefLines` say how data lies in a window.
//
// What does not depend on memory is worked out before the grids ahead have ended; then the first loads are issued all at once.
// 1. A thread reads and writes the same elements in every step, so that input and output may be the same memory.
// 2. A channel's epoch is written when all threads have read it; the argument for two banks (algo/lane.h) needs no more, as a call of one
//    round ends with its kernel. Of two rounds a thread goes from one to the other by itself. It forwards a line of round n + 1 when it has
//    all ranks' line of round n, so they are done with n - 1, whose bank that was. And a peer's line of n + 1 shows that the peer has read
//    this rank's line of n: with all of n + 1 taken, which the barrier between slices and the end of a kernel wait for, n's bank is free.
//    It takes chunks of one length for that: there is a line of n + 1 for each of n.
// 3. `kPeers` ranks are waited for together: 1 where there are two ranks, and so one peer.
#pragma once

#include "exec/cuda/brief.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/lone_lane.cuh"

namespace tutti::exec::cuda {

/// Ranks that are waited for together where there are more than two.
inline constexpr int kPeersAtOnce = 4;

/// Threads of a block at most. More peers take more registers.
constexpr int mostBriefThreads(Protocol protocol, int peers) { return peers == 1 ? mostLoneThreads(protocol) : 384; }

/// Moves the values up by one, and `first` into the first place: a loop that takes the last, does something rare to it and puts it back
/// does so to all, in one place of the code and without an index that would put them into memory.
template <int kCount>
__device__ __forceinline__ void rotate(uint64_t (&value)[kCount], uint64_t first) {
#pragma unroll
  for (int i = kCount - 1; i > 0; --i) value[i] = value[i - 1];
  value[0] = first;
}

/// `Derived` carries a slice out: send() issues loads before it needs the epoch, finish() waits for the peers.
template <class Derived, class Values, int kPeers>
class BriefLane {
 public:
  static constexpr int kPeersTogether = kPeers;

  __device__ __forceinline__ explicit BriefLane(const BriefLaunch& call) : call_(call) {
    const uint32_t begin = blockIdx.x * call.partBytes;
    end_ = min(begin + call.partBytes, call.chunkBytes);
    offset_ = begin;
    channelBytes_ = blockIdx.x * call.shareBytes * call.ranks;
    if constexpr (isPair()) {
      const int32_t peer = 1 - call.rank;
      stored_ = shareFrom(call.window[peer], call.storedPages[peer]);
      taken_ = shareFrom(call.windows + static_cast<uint32_t>(peer) * call.shareBytes, call.takenPages[peer]);
    }
    enterSlice();
  }
  /// After arch::waitForPrecedingGrids().
  __device__ __forceinline__ void run() {
    before_ = arch::loadRelaxedSys(call_.epochs + blockIdx.x);
    derived().send();
    __syncthreads();
    const uint32_t rounds = call_.forwards != 0 ? 2 : 1;
    if (threadIdx.x == 0) call_.epochs[blockIdx.x] = before_ + static_cast<uint32_t>(call_.slices) * rounds;
    derived().finish();
#pragma unroll 1
    for (int32_t slice = 1; slice < call_.slices; ++slice) {
      __syncthreads();
      ++before_;
      offset_ += call_.sliceBytes;
      enterSlice();
      derived().send();
      derived().finish();
    }
  }

 protected:
  __device__ __forceinline__ void enterSlice() {
    offset_ = min(offset_, end_);
    bytes_ = min(call_.sliceBytes, end_ - offset_);
    wholeBytes_ = call_.isAligned ? bytes_ : 0;
  }

  /// The first data is on its way: nothing that needs the epoch is moved up to before this.
  __device__ __forceinline__ void meetEpoch() { asm volatile("" : "+l"(before_)); }
  __device__ __forceinline__ uint64_t epoch() const { return before_ + 1; }
  /// Of a call that forwards: what peers have combined comes next.
  __device__ __forceinline__ void enterNextRound() { ++before_; }

  /// A contribution as it is combined, and what has been combined as it is stored.
  __device__ __forceinline__ uint64_t scaled(uint64_t word) const {
    if constexpr (!Values::kIsMove) {
      if (call_.numbers.hasFactor) return scaleWord<Values::kType>(word, call_.numbers);
    }
    return word;
  }
  __device__ __forceinline__ uint64_t finished(uint64_t word) const {
    if constexpr (!Values::kIsMove) {
      if (call_.numbers.divisor > 1) return divideWord<Values::kType>(word, call_.numbers);
    }
    return word;
  }

  __device__ __forceinline__ uint64_t inWindow(uint64_t epoch) const { return (epoch & 1) * call_.bankBytes + channelBytes_; }
  __device__ __forceinline__ arch::Words2* windowOf(int32_t peer, uint64_t epoch) const {
    if constexpr (isPair()) return reinterpret_cast<arch::Words2*>(const_cast<std::byte*>(stored_.at(epoch)));
    return reinterpret_cast<arch::Words2*>(call_.window[peer] + inWindow(epoch) + bytesBefore(call_.storedPages[peer], epoch));
  }
  __device__ __forceinline__ const arch::Words2* theirs(int32_t peer) const {
    if constexpr (isPair()) return reinterpret_cast<const arch::Words2*>(taken_.at(epoch()));
    return reinterpret_cast<const arch::Words2*>(call_.windows + inWindow(epoch()) + static_cast<uint32_t>(peer) * call_.shareBytes +
                                                 bytesBefore(call_.takenPages[peer], epoch()));
  }
  /// The peers after this rank, from 1 on; no two ranks have the same one at a place.
  __device__ __forceinline__ int32_t peerAt(int32_t place) const {
    const int32_t peer = call_.rank + place;
    return peer < call_.ranks ? peer : peer - call_.ranks;
  }
  __device__ __forceinline__ bool has(uint32_t peers, int32_t place) const {
    return (kPeers == 1 || place < call_.ranks) && (peers >> peerAt(place) & 1) != 0;
  }
  __device__ __forceinline__ const std::byte* sentTo(int32_t peer) const {
    return call_.sent + static_cast<uint32_t>(peer) * call_.sentStride;
  }
  __device__ __forceinline__ std::byte* takenFrom(int32_t peer) const {
    return call_.taken + static_cast<uint32_t>(peer) * call_.takenStride;
  }

  /// Whether the words at `at` are whole and aligned, in all chunks; of halves also those of which one is missing.
  __device__ __forceinline__ bool isWhole(uint32_t at) const {
    if constexpr (Values::kInHalves) return at < bytes_;
    return at + sizeof(uint64_t) <= wholeBytes_;
  }
  __device__ __forceinline__ uint64_t loadWhole(const std::byte* chunk, uint32_t at) const {
    if constexpr (Values::kInHalves) {
      const auto* half = reinterpret_cast<const uint32_t*>(chunk + offset_ + at);
      const uint64_t low = arch::loadWeak(half);
      return at + sizeof(uint32_t) < bytes_ ? low | static_cast<uint64_t>(arch::loadWeak(half + 1)) << 32 : low;
    }
    return arch::loadWeak(reinterpret_cast<const uint64_t*>(chunk + offset_ + at));
  }
  __device__ __forceinline__ void storeWhole(std::byte* chunk, uint32_t at, uint64_t word) const {
    if constexpr (Values::kInHalves) {
      auto* half = reinterpret_cast<uint32_t*>(chunk + offset_ + at);
      arch::storeWeak(half, static_cast<uint32_t>(word));
      if (at + sizeof(uint32_t) < bytes_) arch::storeWeak(half + 1, static_cast<uint32_t>(word >> 32));
      return;
    }
    arch::storeWeak(reinterpret_cast<uint64_t*>(chunk + offset_ + at), word);
  }
  /// Cut short, or askew, or beyond the end.
  __device__ __forceinline__ uint64_t loadOdd(const std::byte* chunk, uint32_t at) const {
    return loadPlain(chunk + offset_, at, bytes_, Values::elementBytes(call_.numbers));
  }
  __device__ __forceinline__ void storeOdd(std::byte* chunk, uint32_t at, uint64_t word) const {
    storePlain(chunk + offset_, at, word, bytes_, Values::elementBytes(call_.numbers));
  }
  __device__ __forceinline__ WaitNote note(int32_t peer, int32_t round = 0) const {
    return {Waiting::ForCell, call_.rank, peer, static_cast<int32_t>(blockIdx.x) + call_.firstChannel, round};
  }

  const BriefLaunch& call_;
  uint32_t offset_;      ///< of the slice in every chunk
  uint32_t bytes_;       ///< of the slice
  uint32_t wholeBytes_;  ///< up to here all buffers may be accessed as aligned words
  uint32_t channelBytes_;
  bool failed_ = false;

 private:
  /// A share in both banks, so that all but a product is there before the epoch is.
  struct BankedShare {
    const std::byte* even;
    uint64_t step;

    __device__ __forceinline__ const std::byte* at(uint64_t epoch) const { return even + (epoch & 1) * step; }
  };
  static constexpr bool isPair() { return kPeers == 1 && Derived::kProtocol == Protocol::Cells; }
  __device__ __forceinline__ BankedShare shareFrom(const std::byte* first, const SharePages& pages) const {
    const auto channel = static_cast<int32_t>(blockIdx.x);
    const uint64_t before = pages.bytesBefore(0, channel);
    return {first + channelBytes_ + before, call_.bankBytes + pages.bytesBefore(1, channel) - before};
  }
  __device__ __forceinline__ uint64_t bytesBefore(const SharePages& pages, uint64_t epoch) const {
    return Derived::kProtocol == Protocol::Cells ? pages.bytesBefore(epoch, static_cast<int32_t>(blockIdx.x)) : 0;
  }
  __device__ __forceinline__ Derived& derived() { return *static_cast<Derived*>(this); }

  BankedShare stored_;  ///< of two ranks over cells alone
  BankedShare taken_;
  uint32_t end_;         ///< of the part
  uint64_t before_ = 0;  ///< the epoch of the slice before
};

/// Fetches the parameters: a lane for each line of them, all at once, instead of one after the other where they are first needed. What is
/// behind the test never happens.
__device__ __forceinline__ void fetchParameters(const BriefLaunch& call) {
  constexpr uint32_t kWordsOfLine = 64 / sizeof(uint32_t);
  constexpr uint32_t kWords = sizeof(BriefLaunch) / sizeof(uint32_t);
  static_assert(kWords <= 32 * kWordsOfLine);
  const uint32_t word = threadIdx.x % 32 * kWordsOfLine;
  if (word < kWords && reinterpret_cast<const uint32_t*>(&call)[word] == 0xfeedc0deu && call.ranks == 0) __nanosleep(1);
}

template <class Lane>
__global__ void __launch_bounds__(mostBriefThreads(Lane::kProtocol, Lane::kPeersTogether), 1)
    briefKernel(const __grid_constant__ BriefLaunch call) {
  fetchParameters(call);
  Lane lane(call);
  arch::waitForPrecedingGrids();
  if (gridDim.x <= kMostEarlyBlocks) arch::allowNextGrid();
  // Before it waits for anybody; by a warp that has the least to do.
  if (blockIdx.x == 0 && threadIdx.x == blockDim.x - 1) postOnBoards(call.wait);
  lane.run();
}

/// The kernels of `Lane`, BriefCells or BriefLines: those that combine, one a type, and the one that moves.
template <template <class, int> class Lane, int kPeers>
struct BriefFunction {
  template <DataType kType>
  const void* operator()() const {
    return reinterpret_cast<const void*>(&briefKernel<Lane<Combined<kType>, kPeers>>);
  }
};
template <template <class, int> class Lane, int kPeers>
LoneEntry makeBriefEntry() {
  static const KernelEntry combine =
      makeEntry({mostBriefThreads(Lane<Moved, kPeers>::kProtocol, kPeers), 0}, BriefFunction<Lane, kPeers>{});
  return {"brief", combine, reinterpret_cast<const void*>(&briefKernel<Lane<Moved, kPeers>>)};
}
/// `isPair`: for two ranks.
template <template <class, int> class Lane>
LoneEntry briefEntryOf(bool isPair) {
  return isPair ? makeBriefEntry<Lane, 1>() : makeBriefEntry<Lane, kPeersAtOnce>();
}

}  // namespace tutti::exec::cuda
