// A step: what one lane does at one point of its program. The vocabulary that algorithms and executors share.
//
// Plain values, trivially copyable, the same on host and device.
// 1. A step names chunks and ranks, never addresses, offsets or sizes: those come from the Geometry and the caller's buffers.
// 2. Values are combined in the order "own contribution, then the received ones as listed", accumulated in the accumulation
//    type and rounded once, when the result is stored or sent.
// 3. Both ends of a pipe see the same number of elements in a slice, also none.
// 4. A reduced value stored to the output buffer is complete: there, and only there, the final scaling is applied.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/ids.h"
#include "core/macros.h"

namespace tutti::algo {

/// The caller's buffers. `In` and `Out` may be the same memory where the collective allows in-place use.
enum class Buffer : uint8_t { None, In, Out };

/// One chunk of one buffer.
struct ChunkRef {
  int32_t chunk = 0;
  Buffer buffer = Buffer::None;
};
TUTTI_HD constexpr ChunkRef in(int32_t chunk) { return {chunk, Buffer::In}; }
TUTTI_HD constexpr ChunkRef out(int32_t chunk) { return {chunk, Buffer::Out}; }

/// The neighbours that a step receives from or sends to, in the order in which their values are combined: a short list, or ranks
/// at doubling distances or at places of an order, of which there may be many.
inline constexpr int kMaxListed = 3;
struct Peers {
  int32_t count = 0;
  /// 0: a list; above: peer i is 2^i places after rank[0], modulo this; -1: at place rank[0] + i rank[1]; below: 1 + i places after
  /// rank[0], modulo -1 - this
  int32_t modulus = 0;
  Rank rank[kMaxListed];
  const int32_t* order = nullptr;  ///< what place is whose; null: each rank's own. Outlives the peers

  Peers() = default;
  TUTTI_HD constexpr Peers(Rank only) : count(1), rank{only, Rank{}, Rank{}} {}  // NOLINT: one peer is a list of one
  TUTTI_HD constexpr Peers(Rank first, Rank second) : count(2), rank{first, second, Rank{}} {}
  TUTTI_HD constexpr void add(Rank peer) { rank[count++] = peer; }

  /// The ranks 1, 2, 4 … 2^(count-1) places after `self`, modulo `ranks`.
  static TUTTI_HD constexpr Peers doubling(Rank self, int32_t ranks, int32_t count) {
    Peers peers(self);
    peers.count = count;
    peers.modulus = ranks;
    return peers;
  }
  /// All `ranks` but `self`, from the next one on.
  static TUTTI_HD constexpr Peers others(Rank self, int32_t ranks) {
    Peers peers(self);
    peers.count = ranks - 1;
    peers.modulus = -1 - ranks;
    return peers;
  }
  /// The ranks at `count` places of `order`, from `first` on, `stride` apart.
  static TUTTI_HD constexpr Peers places(const int32_t* order, int32_t first, int32_t stride, int32_t count) {
    Peers peers{Rank(first), Rank(stride)};
    peers.count = count;
    peers.modulus = -1;
    peers.order = order;
    return peers;
  }
  TUTTI_HD constexpr Rank at(int32_t i) const {
    if (modulus == 0) return rank[i];
    if (modulus > 0) return Rank(static_cast<int32_t>((rank[0].value + (int64_t{1} << i)) % modulus));
    if (modulus < -1) return Rank((rank[0].value + 1 + i) % (-1 - modulus));
    const int32_t place = rank[0].value + i * rank[1].value;
    return Rank(order == nullptr ? place : order[place]);
  }
};

enum class Kind : uint8_t {
  Pipe,        ///< receive from `from`, combine or copy, store to `dst`, send to `to`; each part may be absent
  Store,       ///< put chunk `src` into this rank's cell of the window of `to`; with `reduce` as a scaled contribution
  Arrive,      ///< tell `to` that the cell is complete
  Await,       ///< wait for the arrival of `from`
  LoadReduce,  ///< combine all cells of the own window in rank order into `dst`
  Load,        ///< move the cell of `from` of the own window into `dst`, bit for bit
  Give,        ///< hand this slice over to lane `lane` of the same rank
  Take,        ///< wait until lane `lane` of the same rank has handed this slice over
};

struct Step {
  Kind kind = Kind::Pipe;
  bool reduce = false;  ///< Pipe: received values are combined with `src`; otherwise they are moved bit for bit
  uint8_t port = 0;     ///< tells parallel pipes between the same two ranks apart
  uint8_t round = 0;    ///< windows: which of a slice's rounds; each has a bank of its own
  int8_t lane = -1;     ///< Give, Take: the other lane
  ChunkRef src;
  ChunkRef dst;
  Peers from;
  Peers to;
};
static_assert(std::is_trivially_copyable_v<Step>);

}  // namespace tutti::algo
