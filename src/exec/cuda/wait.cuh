// The one way in which device code waits for other blocks and other GPUs: try, now and then look at the abort word, the board and the
// clock, give up and say for whom. Warps of a block wait for each other at barriers (stages.cuh) that all of them reach, also after one
// has given up; a probe of a path has limits of its own (probe.h).
#pragma once

#include "exec/cuda/arch/memory.cuh"
#include "exec/cuda/arch/sync.cuh"
#include "exec/cuda/verdict.h"

namespace tutti::exec::cuda {

inline constexpr uint32_t kTriesPerCheck = 256;  ///< a try takes some 0.3 us
inline constexpr uint64_t kHostLookNs = 100'000;
// Without looks a wait has no end but its own: a build for measuring what they cost (bench/gpu/goals), never for use.
#ifdef TUTTI_ENDLESS_WAITS
inline constexpr bool kLooks = false;
#else
inline constexpr bool kLooks = true;
#endif

/// Who waits for what; filled in only when a wait gives up.
struct WaitNote {
  Waiting waiting;
  int32_t rank;
  int32_t peer;
  int32_t channel;
  int32_t step;
};

/// All but the state.
__device__ __forceinline__ void describeWait(const WaitControl& control, Verdict& to, const WaitNote& note, uint64_t expected,
                                             uint64_t seen, uint64_t waitedNs) {
  to.waiting = note.waiting;
  to.rank = note.rank;
  to.peer = note.peer;
  to.channel = note.channel;
  to.step = note.step;
  to.expected = expected;
  to.seen = seen;
  to.launch = control.board == nullptr ? 0 : arch::loadRelaxedSys(&control.own->launch);
  to.signature = control.signature;
  to.waitedNs = waitedNs;
  arch::fenceAcqRelSys();
}

__device__ __forceinline__ void reportGiveUp(const WaitControl& control, WaitNote note, uint64_t expected, uint64_t seen,
                                             uint64_t waitedNs = 0, Verdict::State as = Verdict::Complete) {
  if (arch::swapRelaxedSys(&control.relay->claimed, 1) == 0) {
    describeWait(control, *control.verdict, note, expected, seen, waitedNs);
    arch::storeRelaxedSys(&control.verdict->state, as);
  }
  arch::storeRelaxedSys(&control.relay->stop, 1);  // also for the rank's kernels behind this one
  arch::storeRelaxedSys(control.abort, 1);
}

/// What a thread that waits knows of the host.
enum class News : uint32_t { None, Abort, OwnLook };  ///< OwnLook: it has just looked, for all threads of the rank

/// Whether the abort word is set, as far as this rank knows. Who looks brings the limit along: limits are milliseconds and more, so a wait
/// that could go past one has been looked for many times, and what counted before its launch is long gone.
__device__ __forceinline__ News lookForNews(const WaitControl& control, uint64_t nowNs) {
  if (arch::loadRelaxedSys(&control.relay->stop) != 0) return News::Abort;
  const uint64_t looked = arch::loadRelaxedSys(&control.relay->lookedNs);
  if (nowNs - looked < kHostLookNs || !arch::replaceRelaxedSys(&control.relay->lookedNs, looked, nowNs))
    return News::None;
  const uint32_t abort = arch::loadRelaxedSys(control.abort);
  arch::storeRelaxedSys(&control.relay->limitNs, arch::loadRelaxedSys(&control.desk->limitNs));
  if (abort == 0) return News::OwnLook;
  arch::storeRelaxedSys(&control.relay->stop, 1);
  return News::Abort;
}

/// Tells the host of a wait that lasts: once of all that stand still together. Only by who has looked, so by one thread at a time.
__device__ __forceinline__ void tellOfWait(const WaitControl& control, const WaitNote& note, uint64_t expected, uint64_t seen,
                                           uint32_t since, uint32_t now) {
  const uint32_t waited = now - since;
  if (waited < kLeastSilence || now - arch::loadRelaxedSys(&control.relay->told) <= waited) return;
  const uint32_t silence = arch::loadRelaxedSys(&control.desk->silence);
  if (silence == 0 || waited < silence || arch::loadRelaxedSys(&control.desk->lasting.state) != Verdict::Empty) return;
  arch::storeRelaxedSys(&control.relay->told, now);
  describeWait(control, control.desk->lasting, note, expected, seen, static_cast<uint64_t>(waited) << kTickShift);
  arch::storeRelaxedSys(&control.desk->lasting.state, Verdict::Complete);
}

/// Counts this launch, and tells all peers what it is. One thread of a launch.
__device__ __forceinline__ void postOnBoards(const WaitControl& control) {
  if (control.board == nullptr) return;
  const arch::Words2 entry{{arch::loadRelaxedSys(&control.own->launch) + 1, control.signature}};
  arch::storeRelaxedSys(reinterpret_cast<arch::Words2*>(control.own), entry);
  for (int peer = 0; peer < kBoardPeers; ++peer) {
    if (control.post[peer] == nullptr) continue;
    arch::storeRelaxedSys(reinterpret_cast<arch::Words2*>(control.post[peer]), entry);
  }
}

/// The signature of the launch in which `peer` is, if it is the launch with this number and not this one; else the own. Before this launch
/// has posted, the own entry is that of the launch before, which was compared when it ran.
__device__ __forceinline__ uint64_t foreignSignature(const WaitControl& control, int32_t peer) {
  if (control.board == nullptr || peer < 0 || peer >= kBoardPeers) return control.signature;
  const arch::Words2 own = arch::loadRelaxedSys(reinterpret_cast<const arch::Words2*>(control.own));
  const arch::Words2 entry = arch::loadRelaxedSys(reinterpret_cast<const arch::Words2*>(control.board + peer));
  return own.word[1] == control.signature && entry.word[0] == own.word[0] ? entry.word[1] : control.signature;
}

/// What a wait remembers between two looks at what could end it: little, for it stays in registers beside all else.
struct WaitState {
  uint32_t since = 0;    ///< ticks; 0: it has not looked yet
  uint32_t foreign = 0;  ///< half of what the peer had posted
};

/// One look. False: the abort word is set, a mismatch was found, or the time is up. All of that is reported; the first only of a wait for
/// another rank that has looked before, so one of some 0.1 ms.
__device__ __forceinline__ bool mayWaitOn(const WaitControl& control, const WaitNote& note, uint64_t expected, uint64_t seen,
                                          WaitState& state) {
  const uint64_t nowNs = arch::globalTimerNs();
  const News news = lookForNews(control, nowNs);
  const bool isEnded = news == News::Abort;
  if (isEnded && (state.since == 0 || note.waiting == Waiting::ForHandOver)) return false;
  const auto now = tickOf(nowNs);
  if (state.since == 0) state.since = beginningAt(now);
  if (news == News::OwnLook) tellOfWait(control, note, expected, seen, state.since, now);
  const uint64_t other = note.waiting == Waiting::ForHandOver ? control.signature : foreignSignature(control, note.peer);
  const uint32_t half = static_cast<uint32_t>(other ^ other >> 32) | 1;
  const bool isForeign = !isEnded && other != control.signature && half == state.foreign;
  state.foreign = half;
  const uint64_t limitNs = arch::loadRelaxedSys(&control.relay->limitNs);
  const uint32_t waited = now - state.since;
  if (!isEnded && !isForeign && !isPast(waited, limitNs)) return true;
  WaitNote last = note;
  if (isForeign) last.waiting = Waiting::Mismatch;
  reportGiveUp(control, last, isForeign ? control.signature : expected, isForeign ? other : seen,
               static_cast<uint64_t>(waited) << kTickShift, isEnded ? Verdict::Ended : Verdict::Complete);
  return false;
}

/// Calls `attempt(seen)` until it returns true. False: mayWaitOn() was. `attempt` leaves in `seen` what it found instead of `expected`.
template <class Attempt>
__device__ __forceinline__ bool waitUntil(const WaitControl& control, const WaitNote& note, uint64_t expected, Attempt&& attempt) {
  uint64_t seen = 0;
  WaitState state;
  for (uint32_t tries = 1; !attempt(seen); ++tries)
    if (kLooks && tries % kTriesPerCheck == 0 && !mayWaitOn(control, note, expected, seen, state)) return false;
  return true;
}

/// The same for all threads of a warp together: until `attempt` is true for each of them. One that lacks something looks for all.
template <class Attempt>
__device__ __forceinline__ bool waitUntilOfWarp(const WaitControl& control, const WaitNote& note, uint64_t expected, Attempt&& attempt) {
  constexpr unsigned kAll = 0xffffffffu;
  uint64_t seen = 0;
  WaitState state;
  for (uint32_t tries = 1;; ++tries) {
    const unsigned lacking = __ballot_sync(kAll, !attempt(seen));
    if (lacking == 0) return true;
    if (!kLooks || tries % kTriesPerCheck != 0) continue;
    const int looker = __ffs(static_cast<int>(lacking)) - 1;
    bool goesOn = true;
    if (static_cast<int>(threadIdx.x % 32) == looker) goesOn = mayWaitOn(control, note, expected, seen, state);
    if (__shfl_sync(kAll, goesOn ? 1 : 0, looker) == 0) return false;
  }
}

}  // namespace tutti::exec::cuda
