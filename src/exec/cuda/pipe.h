// The ends of pipes as kernels see them, and how many bytes a slot carries under each protocol. Plain views, the same on host and device;
// the host owns the memory behind them.
//
// A pipe is `slots` cells of `slotBytes` in the RECEIVER's memory: the sender pushes data over NVLink, the receiver reads locally.
//   filled   in the receiver's memory; the sender stores it (relaxed, after a release fence), the receiver polls it (acquire). Simple only
//   freed    in the sender's memory; the receiver stores it when the piece has been read (relaxed; role_lane.cuh says why without a fence),
//            the sender polls it (acquire)
//   done     in the end itself; the lane that uses the end reads it when a launch begins and writes it when the work ends
// 1. All three count pieces of slices from the birth of the pipe, in 64 bits, so launches follow one another, also as a replayed graph,
//    without a reset; piece n lies in slot n % slots.
// 2. Each protocol has pipes of its own: bytes of one would pass for flags of another.
// 3. An end is used by one block of a launch only. Works on the same blocks follow one another.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/ids.h"
#include "core/macros.h"

namespace tutti::exec::cuda {

/// How data and its arrival are told apart.
enum class Protocol : uint8_t {
  Simple,  ///< data, then a fence, then a counter
  Cells,   ///< 8 bytes of data in 16, each half beside 4 bytes of flag: needs stores of 8 bytes to be whole ("LL")
  Lines,   ///< 120 bytes of data in 128, one flag of 8: only where lines of 128 bytes arrive in order ("LL128")
};
inline constexpr int kNumProtocols = 3;
/// As NCCL_PROTO names it.
constexpr const char* name(Protocol protocol) {
  constexpr const char* kNames[kNumProtocols] = {"Simple", "LL", "LL128"};
  return kNames[static_cast<int>(protocol)];
}

struct PipeEnd {
  int32_t peer = -1;
  uint8_t port = 0;
  bool sends = false;
  std::byte* slots = nullptr;  ///< in the receiver's memory
  uint64_t* wait = nullptr;    ///< own memory: `filled` of a receiving end, `freed` of a sending one
  uint64_t* tell = nullptr;    ///< the peer's memory: `freed` for a receiving end, `filled` for a sending one
  uint64_t done = 0;
  uint64_t freed = 0;  ///< of a sending end: what was last seen of it by the kernel of lone messages, which may be less than it is
};
static_assert(std::is_trivially_copyable_v<PipeEnd> && sizeof(PipeEnd) == 48);

/// The tracks of a layout (connect/layout.h) on whose channels something is: bit t for track t of `count`.
struct Tracks {
  uint64_t bits = ~uint64_t{0};
  int32_t count = 1;
  constexpr bool has(int32_t channel) const { return (bits >> (channel % count) & 1) != 0; }
  friend std::strong_ordering operator<=>(const Tracks&, const Tracks&) = default;
  friend bool operator==(const Tracks&, const Tracks&) = default;
};
inline constexpr int kMostTracks = 64;

/// Pipes of one protocol and port between a rank and a peer, one on each channel of `tracks`: what a plan needs to be open.
struct PipeNeed {
  Protocol protocol = Protocol::Simple;
  uint8_t port = 0;
  bool sends = false;  ///< to `peer`
  Rank peer;
  Tracks tracks{};  ///< the same in all needs of this protocol, port, direction and peer, and in the peer's
  friend std::strong_ordering operator<=>(const PipeNeed&, const PipeNeed&) = default;
  friend bool operator==(const PipeNeed&, const PipeNeed&) = default;
};

/// The most ends of one protocol on one channel: 8 ranks' rings, trees, messages and PAT fit.
inline constexpr int kMostEnds = 64;
/// The most lanes of a channel between which slices are handed over.
inline constexpr int kHandOverLanes = 4;

/// Slices that lanes of one rank hand over to each other; own memory, by channel and taking lane.
struct alignas(128) HandOver {
  uint64_t given;  ///< by another lane, since the birth of the communicator: it stores (relaxed, after a fence), the taker polls (acquire)
  uint64_t taken;  ///< the taker's own
};

/// The pipes of one protocol of one rank.
struct PipeView {
  PipeEnd* ends = nullptr;       ///< [channel][kMostEnds], in own memory; unused ones have peer -1 and follow the used ones
  HandOver* handOver = nullptr;  ///< [channel][kHandOverLanes]; the same for all protocols
  uint64_t slotBytes = 0;        ///< of memory; a multiple of 128
  int32_t slots = 2;             ///< of a pipe: as many slices as the algorithm needs, cut into pieces of carriedBytes()
};
static_assert(std::is_trivially_copyable_v<PipeView>);

inline constexpr uint64_t kCellBytes = 16;
inline constexpr uint64_t kCellDataBytes = 8;
inline constexpr uint64_t kLineBytes = 128;
inline constexpr uint64_t kLineDataBytes = 120;

/// What goes through the stages of the Bulk kernel at once: a larger slot would be carried word by word.
inline constexpr uint64_t kMostStreamedBytes = uint64_t{32} * 28672;

/// What `bytes` of memory carry.
TUTTI_HD constexpr uint64_t carriedBytes(Protocol protocol, uint64_t bytes) {
  return protocol == Protocol::Cells   ? bytes / kCellBytes * kCellDataBytes
         : protocol == Protocol::Lines ? bytes / kLineBytes * kLineDataBytes
                                       : bytes;
}

/// A flag of 32 bits comes again after 2^32 pieces or rounds. So that no cell is left with a flag that old, every cell of a slot (or of a
/// window's cell) is written, needed or not, once in this many.
inline constexpr uint64_t kRewriteEvery = uint64_t{1} << 30;

}  // namespace tutti::exec::cuda
