// The one way in which device code waits: try, now and then look at the abort word and the clock, give up and say for whom.
#pragma once

#include "exec/cuda/arch/memory.cuh"
#include "exec/cuda/arch/sync.cuh"
#include "exec/cuda/verdict.h"

namespace tutti::exec::cuda {

inline constexpr uint32_t kTriesPerCheck = 256;  ///< a try takes some 0.3 us
inline constexpr uint64_t kHostLookNs = 100'000;

/// Who waits for what; filled in only when a wait gives up.
struct WaitNote {
  Waiting waiting;
  int32_t rank;
  int32_t peer;
  int32_t channel;
};

__device__ __noinline__ void reportGiveUp(const WaitControl& control, WaitNote note, uint64_t expected, uint64_t seen) {
  if (arch::swapRelaxedSys(&control.verdict->state, Verdict::Claimed) == Verdict::Empty) {
    control.verdict->waiting = note.waiting;
    control.verdict->rank = note.rank;
    control.verdict->peer = note.peer;
    control.verdict->channel = note.channel;
    control.verdict->expected = expected;
    control.verdict->seen = seen;
    arch::fenceAcqRelSys();
  }
  arch::storeRelaxedSys(&control.verdict->state, Verdict::Complete);
  arch::storeRelaxedSys(control.abort, 1);
}

/// Whether the abort word is set, as far as this rank knows.
__device__ __forceinline__ bool isAborted(const WaitControl& control, uint64_t nowNs) {
  if (arch::loadRelaxedSys(&control.relay->stop) != 0) return true;
  const uint64_t looked = arch::loadRelaxedSys(&control.relay->lookedNs);
  if (nowNs - looked < kHostLookNs || !arch::replaceRelaxedSys(&control.relay->lookedNs, looked, nowNs)) return false;
  if (arch::loadRelaxedSys(control.abort) == 0) return false;
  arch::storeRelaxedSys(&control.relay->stop, 1);
  return true;
}

/// Calls `attempt(seen)` until it returns true. False: the abort word was set, or the time was up (then it is reported).
/// `attempt` leaves in `seen` what it found instead of `expected`.
template <class Attempt>
__device__ __forceinline__ bool waitUntil(const WaitControl& control, WaitNote note, uint64_t expected, Attempt&& attempt) {
  uint64_t start = 0;
  uint64_t seen = 0;
  for (uint32_t tries = 1; !attempt(seen); ++tries) {
    if (tries % kTriesPerCheck != 0) continue;
    const uint64_t now = arch::globalTimerNs();
    if (isAborted(control, now)) return false;
    if (start == 0) start = now;
    if (now - start > control.timeoutNs) {
      reportGiveUp(control, note, expected, seen);
      return false;
    }
  }
  return true;
}

}  // namespace tutti::exec::cuda
