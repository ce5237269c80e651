// What a wait that gave up leaves behind, of a kernel or of a stream (transport/device/stages.h), and what a kernel needs to be able to.
// Plain views, the same on host and device.
//
// Owner: whoever allocated them (host memory that every device has mapped); they outlive every launch that was given them.
// 1. Each rank has a verdict. Its first wait that gives up claims it, fills it in and then sets `state` to Complete; later ones leave it
//    alone. It is claimed in the rank's own memory: what several devices exchange in host memory may be lost where a bus does not carry
//    atomic operations, and then nobody would ever complete it. The first wait that is ended from outside fills it in as Ended, so
//    that whoever waited for the rank can be told for whom it waited in turn.
// 2. `abort` is set by the host or by any rank whose wait gave up; it is never cleared while a kernel runs.
// 3. The board tells calls that differ apart: every launch posts its number and signature to all peers before it does anything else, and
//    a wait that lasts compares what its peer has posted. Two looks in a row must agree, because a post is two words.
// 4. Launches are counted on the device, in the rank's own entry of its own board: the same launch comes again when a graph is replayed.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/macros.h"

namespace tutti::exec::cuda {

enum class Waiting : uint32_t {
  None,
  ForData,      ///< of a pipe: the peer's next piece
  ForSlot,      ///< of a pipe: a slot that the peer has not freed
  ForCell,      ///< of a window: the peer's cell
  ForArrival,   ///< of a window: the peer's arrival
  ForHandOver,  ///< for another lane of the same rank; `peer` is the lane
  ForLeave,     ///< of calls on windows: the peer's leave to use its buffers
  ForCopies,    ///< of calls on windows: that the peer has done its part
  OtherPlace,   ///< the peer's buffers lie elsewhere than a window promises (`expected` and `seen` are places)
  Mismatch,     ///< the peer is in a call with the same number and another signature (`expected` is the own one, `seen` its)
};

struct Verdict {
  enum State : uint32_t { Empty, Claimed, Complete, Ended };
  uint32_t state;  // device: a store after a fence; the host looks while kernels run
  Waiting waiting;
  int32_t rank;  ///< who waited
  int32_t peer;  ///< for whom
  int32_t channel;     ///< -1: a stream waited, and no kernel (transport/device/page.h)
  int32_t step;       ///< of the lane's program
  uint64_t expected;  ///< ForData, ForSlot, ForHandOver: the counter waited for; ForCell, ForArrival: the epoch; ForLeave …: the call
  uint64_t seen;
  uint64_t launch;     ///< number of the launch that waited; 0: none has one
  uint64_t signature;  ///< of that launch (WaitControl)
  uint64_t waitedNs;
};

/// Devices reckon the length of waits in ticks of 2^kTickShift ns, some 1 ms: a word of half the size, where registers are few. It comes
/// round after 52 days, and differences of two hold across that.
inline constexpr int kTickShift = 20;
TUTTI_HD uint32_t tickOf(uint64_t ns) { return static_cast<uint32_t>(ns >> kTickShift); }
/// As what a wait that begins now remembers: never 0, and no later, by at most a tick.
TUTTI_HD uint32_t beginningAt(uint32_t tick) { return (tick - 1) | 1; }
/// Whether a wait of `ticks` since beginningAt() is past the limit; 0: there is none. Never too early: that leaves out what is left of the
/// ticks at both ends, and of the limit's last one.
TUTTI_HD bool isPast(uint32_t ticks, uint64_t limitNs) { return limitNs != 0 && ticks > (limitNs >> kTickShift) + 2; }

/// What the host tells the waits of one rank's kernels, whenever those were launched, and they tell it while they last: in host memory, a
/// line of its own for each rank.
struct alignas(128) WaitDesk {
  /// How long a wait may last; 0: for ever. The host writes (relaxed); whoever looks at the abort word reads (relaxed).
  uint64_t limitNs;
  uint32_t silence;  ///< ticks; a wait this long is told; at least kLeastSilence, 0: none is. The host writes it before the first launch
  /// Such a wait, as a verdict would have it. A device fills it in where it is Empty; the host empties it.
  Verdict lasting;
  /// What the rank's first wait that gave up, or was ended, has left. Any rank's host may read it.
  Verdict givenUp;
};
inline constexpr uint32_t kLeastSilence = 2;

/// Keeps a waiting device off the bus: of all its threads at most one looks at the host's abort word and desk in every kHostLookNs, and
/// tells the others. A look by every waiting warp costs some 0.6 us each, one after the other (docs/decisions/0002): with 512
/// warps longer than a whole check interval, so that two ranks which had once waited for each other never got back to speed.
struct AbortRelay {
  uint64_t lookedNs;  // device time of the last look; the thread that exchanges it (relaxed) does the next
  uint64_t limitNs;   // as that thread has found it on the desk (relaxed); all waiting threads of the rank read it (relaxed)
  uint32_t told;      // ticks when that thread told of a wait on the desk: one that began before is of the same standstill
  uint32_t stop;      // that thread sets it (relaxed), and whoever gives up; all waiting threads of the rank poll it (relaxed)
  uint32_t claimed;   // the thread that exchanges it first (relaxed) fills the rank's verdict in
};

/// What a rank is doing, as its peers see it: written by one thread of its launch (relaxed), read by peers that wait (relaxed).
struct BoardEntry {
  uint64_t launch;  ///< number, from 1; the same on all ranks if they launch the same
  uint64_t signature;
};
inline constexpr int kBoardPeers = 8;

/// How long device waits go on, and where they look whether to stop.
struct WaitControl {
  uint32_t* abort = nullptr;    ///< in host memory; host and devices write 1 (relaxed)
  AbortRelay* relay = nullptr;  ///< in the rank's own memory
  Verdict* verdict = nullptr;
  WaitDesk* desk = nullptr;            ///< of the rank
  BoardEntry* post[kBoardPeers] = {};  ///< by peer: where this rank posts, in the peer's memory; null: itself, or no board with that peer
  const BoardEntry* board = nullptr;   ///< [kBoardPeers] in own memory, by peer; null: none
  BoardEntry* own = nullptr;           ///< of the board: this rank's; written by one thread of its launch alone
  uint64_t signature = 0;              ///< of its calls, the same on all ranks if they agree; without a board any name of the launch
};
static_assert(std::is_trivially_copyable_v<WaitControl> && std::is_trivially_copyable_v<Verdict>);
static_assert(sizeof(BoardEntry) == 16);

}  // namespace tutti::exec::cuda
