// What a brief call is launched with: a lone call over windows, of one round or of two of which the first forwards what it combines, whose
// addresses the host has worked out, so that a kernel of few instructions begins with its loads. Plain values, the same on host and device;
// made by makeBrief() alone.
//
// A block is a channel. Its part of every chunk is [block * partBytes, + partBytes) cut to chunkBytes, in slices of sliceBytes; an empty
// slice still has one cell or line.
// 1. All chunks of the call are of one length. What goes to peer p begins at sent + p * sentStride, what it sends belongs to
//    taken + p * takenStride.
// 2. The windows, banks, epochs, cells and lines are those of the kernels of lone calls (lone_lane.cuh): ranks need not agree on which of
//    the two carries a call out.
// 3. What the first instructions read comes first: parameters are fetched by lines of 64 bytes.
#pragma once

#include <type_traits>

#include "exec/cuda/lone.h"

namespace tutti::exec::cuda {

struct BriefLaunch {
  uint64_t* epochs = nullptr;       ///< of the first channel
  const std::byte* own = nullptr;   ///< what is combined with the peers' contributions, or copied
  std::byte* result = nullptr;      ///< of combining, or of the copy
  const std::byte* sent = nullptr;
  uint64_t sentStride = 0;
  uint32_t chunkBytes = 0;
  uint32_t partBytes = 0;
  uint32_t sliceBytes = 0;
  int32_t slices = 1;
  uint32_t stores = 0;  ///< bits: peers that get a part of a chunk
  uint8_t rank = 0;
  uint8_t ranks = 1;
  bool hasOwn = false;  ///< `own` goes to `result`, alone or combined
  std::byte* window[kMaxLocalRanks] = {};  ///< by peer: where it finds what this rank stores; even bank, first channel
  const std::byte* windows = nullptr;      ///< what rank 0 stores for this rank; even bank, first channel
  uint64_t bankBytes = 0;
  uint32_t shareBytes = 0;
  uint32_t empties = 0;  ///< bits: peers that get nothing but an empty cell or line
  uint32_t loads = 0;    ///< bits: peers whose part is taken as it is
  uint32_t awaits = 0;   ///< bits: peers of whom nothing is taken, but who have to arrive
  std::byte* taken = nullptr;
  uint64_t takenStride = 0;
  int32_t firstChannel = 0;  ///< for reports
  bool isAligned = false;    ///< all buffers, strides, parts and slices, to words of 8 bytes
  bool isInHalves = false;   ///< all that and the chunks' length are multiples of 4 bytes, and not all of 8
  uint32_t forwards = 0;     ///< bits: peers that get the result one round ahead; then `loads` is what the second round takes
  Numbers numbers;
  SharePages storedPages[kMaxLocalRanks];  ///< as in WindowView, with the first channel as channel 0
  SharePages takenPages[kMaxLocalRanks];
  WaitControl wait;
};
static_assert(std::is_trivially_copyable_v<BriefLaunch>);

/// Of more than two ranks larger parts of a share take longer so than on the kernels of lone calls.
inline constexpr uint64_t kMostForwardedBytes = 40 << 10;
/// Whether shares of an all-reduce over windows of lines may be combined and forwarded by a brief call: all of one length, and few enough.
constexpr bool mayForward(const algo::Geometry& g, int32_t ranks, uint64_t elementBytes) {
  const bool areEven = g.chunkElems * static_cast<uint64_t>(ranks) == g.totalElems;
  return areEven && (ranks == 2 || g.partElems * elementBytes <= kMostForwardedBytes);
}

/// False: the call is not a brief one, for it has several rounds (but for those below), no slice, chunks of different lengths or of
/// 2 GiB, a factor that lies in memory, or does not begin with the launch's first block.
/// `rounds` are makeRounds() of the only work of `launch`. `areLines`: two of them may be, if the second takes what the first forwards.
bool makeBrief(const Launch& launch, const Rounds& rounds, bool areLines, BriefLaunch& brief);

}  // namespace tutti::exec::cuda
