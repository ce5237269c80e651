// A rank's window for the other ranks of the process: one cell for every rank, in two banks that take turns.
//
// Owner: the Hub. Cell [bank][r] of a window is written by rank r only and read by the window's rank only.
// 1. A cell's payload is complete when its epoch word equals the epoch that the reader expects (release / acquire).
// 2. Bank = epoch % 2. A rank writes epoch e+2 only after it has seen every peer's e+1, which a peer writes after it has
//    finished reading e: no other barrier is needed.
// 3. A payload may be lent: it then lies in the writer's own buffer, which the writer leaves alone until `returned` says that it was read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "memory/mapping.h"
#include "transport/local/pipe.h"

namespace tutti::transport::local {

inline constexpr size_t kCellInlineBytes = 32;

struct alignas(kCacheLine) CellHead {
  std::atomic<uint64_t> epoch;  ///< writer (release); pairs with the acquire of the window's rank
  uint64_t signature;           ///< writer: which call the cell belongs to
  uint64_t bytes;               ///< writer: payload size; up to kCellInlineBytes lie in inlineData, more in the payload area
  const std::byte* lent;        ///< writer: where the payload lies in its own memory; null: in the cell
  std::byte inlineData[kCellInlineBytes];
};
static_assert(sizeof(CellHead) == kCacheLine);

struct alignas(kCacheLine) ReturnedEpoch {
  std::atomic<uint64_t>
      value;  ///< the window's rank: up to which epoch it has read what was lent (release); pairs with the writer's acquire
};

struct WindowView {
  CellHead* heads = nullptr;      ///< [2][ranks]
  ReturnedEpoch* returned = nullptr;  ///< [ranks], by writer
  std::byte* payloads = nullptr;  ///< [2][ranks][cellBytes]
  int32_t ranks = 0;
  uint64_t cellBytes = 0;

  CellHead& head(uint64_t epoch, Rank writer) const { return heads[index(epoch, writer)]; }
  std::byte* payload(uint64_t epoch, Rank writer, uint64_t bytes) const {
    if (bytes <= kCellInlineBytes) return head(epoch, writer).inlineData;
    return payloads + index(epoch, writer) * cellBytes;
  }
  /// Where what `writer` has stored can be read.
  const std::byte* content(uint64_t epoch, Rank writer, uint64_t bytes) const {
    const std::byte* lent = head(epoch, writer).lent;
    return lent != nullptr ? lent : payload(epoch, writer, bytes);
  }

 private:
  uint64_t index(uint64_t epoch, Rank writer) const {
    return (epoch % 2) * static_cast<uint64_t>(ranks) + static_cast<uint64_t>(writer.value);
  }
};
static_assert(std::is_trivially_copyable_v<WindowView>);

class Window {
 public:
  static Result<Window> create(int32_t ranks, uint64_t cellBytes);
  const WindowView& view() const { return view_; }

 private:
  memory::Mapping mapping_;
  WindowView view_;
};

}  // namespace tutti::transport::local
