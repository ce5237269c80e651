// Chunk arithmetic: which elements a chunk, a channel and a slice stand for. The one place with offset maths.
//
//   buffer  |------ chunk 0 ------|------ chunk 1 ------|-- chunk 2 --|      a chunk is a rank's (or a tree's) share
//   chunk   |--- channel 0 ---|--- channel 1 ---|                            each channel works on its part of every chunk
//   part    |- slice 0 -|- slice 1 -|- slice 2 -|                            what one slot carries
//
// Plain value, pure functions, the same on host and device.
// 1. Which chunk an element belongs to depends on count, type, rank count and algorithm, never on channels, slices or slots;
//    so those never change a result where all channels share one ring. Where they run on several tracks (connect/layout.h), an element is
//    combined on the track of its channel: that depends on count, type, rank count, algorithm and the number of channels of the plan.
// 2. The parts and slices of a chunk cover it exactly once; a short chunk has short or empty slices, never a missing one.
#pragma once

#include <type_traits>

#include "core/ids.h"
#include "core/macros.h"
#include "core/types.h"

namespace tutti::algo {

/// Elements [begin, begin + elems) of a buffer.
struct Range {
  uint64_t begin = 0;
  uint64_t elems = 0;
};

struct Geometry {
  uint64_t totalElems = 0;  ///< elements of the larger buffer
  uint64_t chunkElems = 0;  ///< from the start of one chunk to the start of the next
  uint64_t partElems = 0;   ///< a channel's share of a chunk
  uint64_t sliceElems = 1;  ///< at most this many elements a slice
  int32_t channels = 1;
  int32_t slices = 0;       ///< slices of a part; the same for every chunk and channel

  TUTTI_HD Range range(int32_t chunk, int32_t channel, int32_t slice) const {
    const uint64_t chunkBegin = least(chunkElems * static_cast<uint64_t>(chunk), totalElems);
    const uint64_t chunkEnd = least(chunkBegin + chunkElems, totalElems);
    const uint64_t partBegin = least(chunkBegin + partElems * static_cast<uint64_t>(channel), chunkEnd);
    const uint64_t partEnd = least(partBegin + partElems, chunkEnd);
    const uint64_t begin = least(partBegin + sliceElems * static_cast<uint64_t>(slice), partEnd);
    return {begin, least(begin + sliceElems, partEnd) - begin};
  }

  /// Whether the slices cover all elements.
  TUTTI_HD bool isComplete() const { return static_cast<uint64_t>(slices) * sliceElems >= least(least(partElems, chunkElems), totalElems); }

 private:
  static TUTTI_HD uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
};
static_assert(std::is_trivially_copyable_v<Geometry>);

/// How a call's count becomes chunks: `count` elements cut into `chunks` shares (all-reduce, broadcast, reduce), or
/// `chunks` blocks of `count` elements each (all-gather, reduce-scatter, all-to-all, gather, scatter).
enum class Division : uint8_t { Shares, Blocks };

/// Shares begin at multiples of this, so that vector accesses of all ranks line up. A constant of the numerics contract.
inline constexpr uint64_t kShareAlignBytes = 64;

/// More slices than this cannot be counted: isComplete() is false then.
inline constexpr int32_t kMostSlices = 0x7fffffff;

/// `sliceBytes` bounds what one slice carries; it is rounded down to whole elements, at least one.
TUTTI_HD constexpr Geometry makeGeometry(Division division, uint64_t count, int32_t chunks, DataType type, int32_t channels,
                                         uint64_t sliceBytes) {
  const uint64_t elementBytes = sizeOf(type);
  const uint64_t align = kShareAlignBytes / elementBytes;
  const auto roundUp = [](uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; };
  const auto parts = static_cast<uint64_t>(chunks);

  Geometry g;
  g.channels = channels;
  g.totalElems = division == Division::Shares ? count : count * parts;
  g.chunkElems = division == Division::Shares ? roundUp((count + parts - 1) / parts, align) : count;
  g.partElems = roundUp((g.chunkElems + static_cast<uint64_t>(channels) - 1) / static_cast<uint64_t>(channels), align);
  g.sliceElems = sliceBytes / elementBytes > 0 ? sliceBytes / elementBytes : 1;
  const uint64_t shorter = g.partElems < g.chunkElems ? g.partElems : g.chunkElems;
  const uint64_t longest = shorter < g.totalElems ? shorter : g.totalElems;
  const uint64_t slices = (longest + g.sliceElems - 1) / g.sliceElems;
  g.slices = slices < kMostSlices ? static_cast<int32_t>(slices) : kMostSlices;
  return g;
}

}  // namespace tutti::algo
