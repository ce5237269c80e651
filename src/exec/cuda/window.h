// A window for flag-in-data cells, mapped by all ranks of a group. Plain view, the same on host and device; the host owns the memory.
//
//   window of a rank = [bank 0, 1][writer rank][channel][cell]      cell = {4 data bytes, epoch, 4 data bytes, epoch}
//   cells     the writing rank stores them (relaxed, 8 bytes of {data, epoch} are one atomic store), the owner polls them (relaxed)
//   epochs    own memory, one word a channel: the channel's lane reads it when a launch begins and writes it when it ends
// 1. A channel's epoch counts the slices it has carried, on every rank alike; the slice's bank is its parity.
// 2. Every slice carries at least one cell between every two ranks, also when it is empty; else the argument for two banks
//    without a trailing barrier (algo/lane.h) would not hold for the channel.
// 3. Epochs are 32 bits: before one wraps, the owner must clear the window with all ranks quiet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/macros.h"

namespace tutti::exec::cuda {

inline constexpr int kMaxLocalRanks = 8;
inline constexpr uint64_t kCellBytes = 16;
inline constexpr uint64_t kCellDataBytes = 8;

struct WindowView {
  std::byte* base[kMaxLocalRanks] = {};  ///< in the parameters and not in memory: a look-up would cost a trip to the cache
  uint32_t* epochs = nullptr;
  int32_t channels = 0;        ///< that the window has room for; at least those of the launch
  uint32_t cellsPerSlice = 0;  ///< at least ceil(sliceBytes / kCellDataBytes)

  TUTTI_HD std::byte* cells(int32_t owner, uint32_t bank, int32_t writer, int32_t ranks, int32_t channel) const {
    const uint64_t index = (static_cast<uint64_t>(bank) * ranks + writer) * channels + channel;
    return base[owner] + index * cellsPerSlice * kCellBytes;
  }
};
static_assert(std::is_trivially_copyable_v<WindowView>);

constexpr uint64_t windowBytes(int32_t ranks, int32_t channels, uint32_t cellsPerSlice) {
  return uint64_t{2} * ranks * channels * cellsPerSlice * kCellBytes;
}

}  // namespace tutti::exec::cuda
