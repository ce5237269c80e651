// A rank's window for the other ranks that see the same memory: one cell for every rank, in two banks that take turns.
//
// Owner: the Hub, or who makes a Window. Zeroed memory is a fresh window.
// Cell [bank][r] of a window is written by rank r only and read by the window's rank only; its own one by all (5).
// 1. A cell's payload is complete when its epoch word equals the epoch that the reader expects (release / acquire).
// 2. Bank = epoch % 2. A rank writes epoch e+2 only after it has seen every peer's e+1, which a peer writes after it has
//    finished reading e: no other barrier is needed. So once it has seen them arrive in e, it may write e+1, before its own next arrival.
// 3. A payload may be lent: it then lies in the writer's own buffer, which the writer leaves alone until `returned` says that it was read.
// 4. With what it lends, a rank may offer a place in its memory. Its peer writes only whole pages there, so that they can be taken back
//    (memory/host_allocator.h), and only until it arrives in the round after that, which the rank waits for before its call ends.
// 5. Where a rank has the same for all others, they may read it in its own cell of its own window instead, of the same bank: by rule 2 they
//    have done so before it is written again. The heads of their cells say so (kInLead), unless all ranks do so in a round, or none.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "memory/mapping.h"
#include "transport/local/pipe.h"

namespace tutti::transport::local {

/// What has room beside the epoch in its line. Not also in the line after that: where caches fetch lines in pairs, whoever waits for the
/// first takes the second away from its writer (`bench_mpi all_gather --from 32 --to 512` of two ranks and of eight, on a Xeon: 64 bytes
/// there took longer than 256 elsewhere).
inline constexpr size_t kCellInlineBytes = 32;

/// Two lines, so that no two heads share a pair.
struct alignas(2 * kCacheLine) CellHead {
  std::atomic<uint64_t> epoch;  ///< writer (release); pairs with the acquire of the window's rank
  uint64_t signature;           ///< writer: which call the cell belongs to
  uint64_t bytes;               ///< writer: payload size; up to kCellInlineBytes lie in inlineData, more in the payload area
  uint64_t lent;                ///< writer: address of the payload in its own memory; 0: in the cell; kInLead: where rule 5 says
  union {
    std::byte inlineData[kCellInlineBytes];
    /// Writer, of what is lent, 0: nowhere. With a contribution: where in the writer's memory the window's rank may put what it combines of
    /// it. With such a result: the same place, in memory of the window's rank, whose whole pages have it already.
    uint64_t offer;
  };
};
static_assert(sizeof(CellHead) == 2 * kCacheLine);

struct alignas(kCacheLine) ReturnedEpoch {
  /// The window's rank: up to which epoch it has read what was lent (release); pairs with the writer's acquire.
  std::atomic<uint64_t> value;
  /// The window's rank: what of the writer's memory it can read (release), a set of kReaches…; pairs with the writer's acquire.
  std::atomic<uint32_t> reach;
};

struct WindowView {
  CellHead* heads = nullptr;      ///< [2][ranks]
  ReturnedEpoch* returned = nullptr;  ///< [ranks], by writer
  std::byte* payloads = nullptr;  ///< [2][ranks][cellBytes]
  int32_t ranks = 0;
  uint64_t cellBytes = 0;

  CellHead& head(uint64_t epoch, Rank writer) const { return heads[index(epoch, writer)]; }
  /// Below kMovingBytes the same for all epochs of a bank.
  std::byte* payload(uint64_t epoch, Rank writer, uint64_t bytes) const {
    if (bytes <= kCellInlineBytes) return head(epoch, writer).inlineData;
    return payloads + index(epoch, writer) * cellBytes + placeInRoom(epoch / 2, bytes, movingRoom());
  }
 private:
  /// What values move through in a cell (placeInRoom): of all windows together, in both banks, about what the second caches of two cores
  /// hold.
  uint64_t movingRoom() const {
    constexpr uint64_t kOfABank = 1 << 20;
    const auto others = static_cast<uint64_t>(ranks - 1);
    return others == 0 ? 0 : std::min(cellBytes, kOfABank / (others * (others + 1)));
  }
  uint64_t index(uint64_t epoch, Rank writer) const {
    return (epoch % 2) * static_cast<uint64_t>(ranks) + static_cast<uint64_t>(writer.value);
  }
};
static_assert(std::is_trivially_copyable_v<WindowView>);

/// Memory that a window takes, and the window in such memory, which is zero or holds that window already.
uint64_t windowBytes(int32_t ranks, uint64_t cellBytes);
WindowView windowIn(std::byte* memory, int32_t ranks, uint64_t cellBytes);

/// Owns a window of this process, whose readers reach everything.
class Window {
 public:
  static Result<Window> create(int32_t ranks, uint64_t cellBytes);
  const WindowView& view() const { return view_; }

 private:
  memory::Mapping mapping_;
  WindowView view_;
};

}  // namespace tutti::transport::local
