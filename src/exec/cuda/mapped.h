// A call that reduces what lies in windows of all ranks: its blocks load every rank's contributions where they lie, combine them in rank
// order, and store the results where they belong, also into the peers' outputs. Plain views, the same on host and device; the host owns the
// memory behind them.
//
//   Begin     as in copies.h: all ranks have come to the call, their inputs are there and their outputs may be written. The first block
//             tells of the call, every block waits
//   combine   every block its part; nobody waits
//   End       as in copies.h, by the block that is done last: all ranks have stored what is this one's, and read what they needed of it
// 1. Each rank combines a part that is its own: of an all-reduce one of as many shares as there are ranks, of a reduce-scatter its block.
// 2. The bits are those of one-shot and two-shot: rank order, the accumulation type, rounded once.
// 3. Sources and targets may be the same memory, place for place: every element is read and written by one thread.
// 4. Blocks whose Begin gives up combine nothing, then none is the last one, and no later call of the rank passes its Begin. A rank that
//    comes late may find leave from before its peers gave up: the outputs of such a call may be written until its stream has come to its
//    end.
// 5. A launch that is alone combines, and nothing else: Begin, Meet and End are somebody else's, on the stream before and behind it. Where
//    the rank has given up it does nothing.
// 6. To begin, blocks wait for the peers' first ones alone, which a device begins with, so they need not all be there at once. The call is
//    counted by the block that is done last, which waits for all of theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/macros.h"
#include "core/types.h"
#include "exec/cuda/copies.h"
#include "exec/cuda/window.h"

namespace tutti::exec::cuda {

struct MappedLaunch {
  CopyLaunch call;
  const std::byte* source[kMaxLocalRanks] = {};  ///< of each rank, in rank order: contributions as their owners have them
  std::byte* target[kMaxLocalRanks] = {};
  int32_t sources = 0;
  int32_t targets = 0;
  uint64_t bytes = 0;  ///< of each source and target; 0: nothing to do
  DataType type = DataType::F32;
  ReduceOp op = ReduceOp::Sum;
  Scaling scaling;       ///< the same of all ranks' contributions
  bool isAlone = false;  ///< 5
};
static_assert(std::is_trivially_copyable_v<MappedLaunch> && sizeof(MappedLaunch) <= 4096);

/// Threads of a block. Those of floats ask for fewer vectors each, so that more find registers; integers, which divide, and types of 8 bits
/// need more of them (docs/decisions/0063).
TUTTI_HD constexpr int32_t mappedThreads(DataType type) { return isInteger(type) || sizeOf(type) == 1 ? 640 : 1024; }

/// The part of block `block` of `blocks`: from `begin`, so many bytes, cut at multiples of a line.
struct MappedPart {
  uint64_t begin = 0;
  uint64_t bytes = 0;
};
TUTTI_HD constexpr MappedPart mappedPart(uint64_t bytes, int32_t block, int32_t blocks) {
  constexpr uint64_t kLine = 128;
  const uint64_t each = (bytes / static_cast<uint64_t>(blocks) / kLine + 1) * kLine;
  const uint64_t begin = each * static_cast<uint64_t>(block);
  if (begin >= bytes) return {};
  return {begin, bytes - begin < each ? bytes - begin : each};
}

}  // namespace tutti::exec::cuda
