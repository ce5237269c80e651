// Windows mapped by all ranks of a group: one of flag-in-data cells, one of plain data with arrivals, one of lines with flags. Plain views,
// the same on host and device; the host owns the memory.
//
//   cells window    [bank 0, 1][channel][writer rank][cell]   cell = {4 data bytes, flag, 4 data bytes, flag}
//   data window     [bank 0, 1][channel][writer rank][bytes]  and arrivals [channel][writer rank], each in a line of its own
//   lines window    [bank 0, 1][channel][writer rank][line]   line = {120 data bytes, 8 bytes of flag}
//   cells     the writing rank stores them (relaxed, 8 bytes of {data, flag} are one atomic store), the owner polls them (relaxed)
//   lines     the writing rank stores them (relaxed, 128 bytes by 8 threads at once), the owner polls them (relaxed)
//   arrivals  the writing rank stores the epoch (relaxed, after a release fence), the owner polls it (acquire)
//   epochs    own memory, one word a channel: the channel's lane reads it when a work begins and writes it when it ends
// 1. A channel's epoch counts the rounds it has carried, on every rank alike; the round's bank is its parity, its flag the low 32 bits, of
//    lines all 64.
// 2. Every round carries at least one cell or line, or an arrival, between every two ranks, also when it is empty; else the argument for
// two
//    banks without a trailing barrier (algo/lane.h) would not hold for the channel.
// 3. Flags may wrap: kRewriteEvery.
// 4. A share of cells begins on its first page or on its second, whichever is at home in the half of the GPU that the channel's block runs
//    in (near_pages.h): a flag there is seen earlier. So it holds a page less than it takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/macros.h"
#include "exec/cuda/pipe.h"

namespace tutti::exec::cuda {

inline constexpr int kMaxLocalRanks = 8;
/// A communicator has one of cells, one of plain data and one of lines.
inline constexpr int kNumWindows = 3;
constexpr int windowOf(Protocol protocol) { return protocol == Protocol::Cells ? 0 : protocol == Protocol::Simple ? 1 : 2; }

/// Pages of memory are at home in one half of a GPU or the other, by turns.
inline constexpr uint64_t kPageBytes = 4096;
/// Channels whose shares may begin on their second page.
inline constexpr int32_t kPlacedChannels = 32;

/// Which shares begin on their second page: a bit a channel, by bank.
struct SharePages {
  uint32_t laterIn[2] = {};

  TUTTI_HD uint64_t bytesBefore(uint64_t epoch, int32_t channel) const {
    return channel < kPlacedChannels && (laterIn[epoch & 1] >> channel & 1) != 0 ? kPageBytes : 0;
  }
};

/// What of a share may be used.
TUTTI_HD constexpr uint64_t shareRoom(Protocol protocol, uint64_t shareBytes) {
  return protocol == Protocol::Cells && shareBytes >= 2 * kPageBytes ? shareBytes - kPageBytes : shareBytes;
}

struct WindowView {
  std::byte* base[kMaxLocalRanks] = {};     ///< in the parameters and not in memory: a look-up would cost a trip to the cache
  uint64_t* arrivals[kMaxLocalRanks] = {};  ///< data window only: of each rank
  uint64_t* epochs = nullptr;
  uint64_t shareBytes = 0;  ///< of one writer on one channel in one bank; a multiple of 128, of cells of two pages or below one
  int32_t channels = 0;     ///< that the window has room for; at least those of the launch
  SharePages storedPages[kMaxLocalRanks];  ///< cells window only: of what this rank stores for each peer
  SharePages takenPages[kMaxLocalRanks];   ///< of what each peer stores for this rank

  /// Where `peer` finds what `self` stores for it in a round.
  TUTTI_HD std::byte* shareAt(int32_t peer, uint64_t epoch, int32_t self, int32_t ranks, int32_t channel) const {
    return share(peer, epoch, self, ranks, channel) + storedPages[peer].bytesBefore(epoch, channel);
  }
  /// Where `self` finds what `peer` stores for it.
  TUTTI_HD std::byte* shareOf(int32_t peer, uint64_t epoch, int32_t self, int32_t ranks, int32_t channel) const {
    return share(self, epoch, peer, ranks, channel) + takenPages[peer].bytesBefore(epoch, channel);
  }
  /// Its first page.
  TUTTI_HD std::byte* share(int32_t owner, uint64_t epoch, int32_t writer, int32_t ranks, int32_t channel) const {
    const uint64_t index = ((epoch & 1) * static_cast<uint64_t>(channels) + static_cast<uint64_t>(channel)) * static_cast<uint64_t>(ranks) +
                           static_cast<uint64_t>(writer);
    return base[owner] + index * shareBytes;
  }
  TUTTI_HD uint64_t* arrival(int32_t owner, int32_t writer, int32_t channel) const {
    return arrivals[owner] + (channel * kMaxLocalRanks + writer) * kWordsPerLine;  // NOLINT(bugprone-implicit-widening-*): small
  }

  static constexpr int32_t kWordsPerLine = 16;
};
static_assert(std::is_trivially_copyable_v<WindowView>);

TUTTI_HD constexpr uint64_t windowBytes(int32_t ranks, int32_t channels, uint64_t shareBytes) {
  return 2 * static_cast<uint64_t>(ranks) * static_cast<uint64_t>(channels) * shareBytes;
}
TUTTI_HD constexpr uint64_t arrivalBytes(int32_t channels) {
  return static_cast<uint64_t>(channels) * kMaxLocalRanks * WindowView::kWordsPerLine * sizeof(uint64_t);
}

}  // namespace tutti::exec::cuda
