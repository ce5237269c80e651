// A call that only moves little between windows: one kernel of one block, which is done before copy engines would have begun. Plain views,
// the same on host and device; the host owns the memory behind them.
//
//   Begin, the pieces in their order, End: as in copies.h, but that a block moves them
// 1. Pieces of one rank do not overlap; source and target of one are different memory.
// 2. What is given to peers comes first, and End tells of it before the rank's own piece is moved, which concerns nobody else.
// 3. Begin that gives up moves nothing.
// 4. The block is small: it has to find room beside the caller's kernels, and keeps that while it waits for peers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "exec/cuda/copies.h"
#include "exec/cuda/window.h"

namespace tutti::exec::cuda {

struct MovedPiece {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  uint64_t bytes = 0;
};

struct MovedLaunch {
  CopyLaunch call;
  MovedPiece piece[kMaxLocalRanks] = {};
  int32_t pieces = 0;
  int32_t given = 0;          ///< of them to peers, the first ones
  uint32_t elementBytes = 1;  ///< all addresses and lengths are multiples of it
};
static_assert(std::is_trivially_copyable_v<MovedLaunch> && sizeof(MovedLaunch) <= 4096);

}  // namespace tutti::exec::cuda
