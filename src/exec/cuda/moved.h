// A call that only moves between windows, by blocks: by one where it is little, which is done before copy engines would have begun, and by
// several where they are faster than engines. Plain views, the same on host and device; the host owns the memory behind them.
//
//   Begin, the pieces in their order, End: as in copies.h, but that blocks move them
// 1. Pieces of one rank do not overlap; source and target of one are different memory.
// 2. One block: what is given to peers comes first, and End tells of it before the rank's own piece is moved, which concerns nobody else.
//    It is small: it has to find room beside the caller's kernels, and keeps that while it waits for peers.
// 3. Several: the first ones, the givers, wait for Begin as in mapped.h and move a part of each piece that is given, each beginning with
//    another piece, so that all peers are written to all the time; the last of them carries out End. The others move the rank's own piece,
//    and wait for nobody.
// 4. A block whose Begin gives up gives nothing, and then no End is carried out. No later call of the rank by blocks gives anything either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "exec/cuda/copies.h"
#include "exec/cuda/grid.h"
#include "exec/cuda/window.h"

namespace tutti::exec::cuda {

inline constexpr uint64_t kVectorBytes = 16;  ///< what blocks load and store at once; what is askew they move word by word

struct MovedPiece {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  uint64_t bytes = 0;
};

struct MovedLaunch {
  CopyLaunch call;
  MovedPiece piece[kMaxLocalRanks] = {};
  int32_t pieces = 0;
  int32_t given = 0;          ///< of them to peers, the first ones; at most one more is there
  int32_t givers = 1;         ///< blocks that give; as many as there are where no piece is the rank's own. Of one block no matter
  uint32_t elementBytes = 1;  ///< all addresses and lengths are multiples of it
};
static_assert(std::is_trivially_copyable_v<MovedLaunch> && sizeof(MovedLaunch) <= 4096);

/// How many of several blocks give, of pieces of one size: a block moves its rank's own bytes nearly twice as fast as it stores to peers.
constexpr int32_t giversOf(int32_t blocks, int32_t given, bool hasOwn) {
  if (!hasOwn) return blocks;
  const int32_t fair = 2 * blocks * given / (2 * given + 1);
  return fair < 1 ? 1 : fair < blocks ? fair : blocks - 1;
}

}  // namespace tutti::exec::cuda
