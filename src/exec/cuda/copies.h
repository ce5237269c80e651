// A call whose data copy engines move: kernels of one block stand around its copies, and what is only moved passes through no SM. Plain
// views and the steps of those kernels, the same on host and device; the host owns the memory behind them.
//
//   Begin    says to every rank that writes to this one "my output may be written", counts the call (End does where several blocks carry
//            out a call, which all read the count) and posts it on the boards, which
//            nobody waits for, and waits until every rank that this one writes to has said so
//   copies   of the host, on streams of their own behind Begin: into the peers' outputs, which are mapped here
//   Meet     where later copies need what others have done with earlier ones: says to the same ranks as End that all that was on the stream
//            is done, and waits for the same. Counts as a call of its own, and takes the place of End where a call has any
//   End      behind all of them: says to every rank that this one has written to "all of my data has arrived", and waits for the same
//   flags    in memory of their owner, a line for each peer: the peer writes (relaxed, behind a fence), the owner polls (acquire)
// 1. Every rank of the communicator runs the same stages for every such call, whether or not it moves anything, so all count alike; the
//    count is on the device, since a graph is launched as often as its owner likes. `writers` and `written` of all ranks belong together: a
//    rank writes to another if and only if that one expects it. Mapped calls (mapped.h) and those that blocks move (moved.h) share count
//    and flags, so a rank may move what others copy.
// 2. A flag is never overwritten before it was seen: the reader of Ready(n) says Arrived(n or more) behind it, and the writer says its next
//    Ready behind that. Arrived only grows, and who waits for n is content with more.
// 3. With Ready a rank says where its output lies, in 32 bits. The writer compares it with where it has been told to write, and ends the
//    communicator where they differ.
// 4. A wait ends as those of all kernels do (wait.cuh). Streams that carry out stages themselves have a watch to end their waits
//    (transport/device/stages.h), and words of their own: all ranks of a call do so, or none does. Copies behind a
//    Begin that gave up are carried out all the same: they write to the peers' windows, which stay mapped, and to nothing else. So the
//    outputs of calls that were aborted may still be written until the peers' streams have come to their end.
// 5. A rank that has given up says nothing in Meet: what it has done before may not be what others build on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/macros.h"
#include "exec/cuda/verdict.h"
#include "exec/cuda/window.h"

namespace tutti::exec::cuda {

/// What a peer says to the owner of the flag; zero before the first call.
struct alignas(128) CopyFlag {
  uint64_t ready;    ///< the call's number, low 32 bits, then where the peer's output lies
  uint64_t arrived;  ///< the call's number
};

/// In own memory, zero before the first call.
struct CopyState {
  uint64_t count;  ///< calls so far, and meetings
  uint32_t done;   ///< blocks of a call of several (mapped.h, moved.h) that have done their parts
};

enum class CopyStage : uint32_t { Begin, Meet, End };
inline constexpr int kCopyThreads = 32;  // a thread for each peer
static_assert(kMaxLocalRanks <= kCopyThreads);

struct CopyLaunch {
  WaitControl wait;
  int32_t rank = 0;
  int32_t ranks = 1;
  uint32_t place = 0;              ///< of this rank's output, as the peers that write there have it
  uint32_t writers = 0;            ///< bits: ranks that write to this one
  uint32_t written = 0;            ///< bits: ranks that this one writes to
  CopyState* state = nullptr;
  const CopyFlag* own = nullptr;   ///< [ranks] in own memory, by peer
  CopyFlag* theirs[kMaxLocalRanks] = {};   ///< of this rank, in each peer's memory
  uint32_t placeOf[kMaxLocalRanks] = {};   ///< of the output of each that this one writes to
};
static_assert(std::is_trivially_copyable_v<CopyLaunch> && sizeof(CopyLaunch) <= 4096);

TUTTI_HD constexpr uint64_t readyWord(uint64_t call, uint32_t place) { return call << 32 | place; }

/// Stages, carried out by threads that a Side stands for: thread() and threads(), load() and store() of words, fence(), meet() (a
/// barrier behind which all see what one has stored), post() (on the boards), hasGivenUp() (the same for all threads),
/// await(waiting, peer, call, attempt) and report(waiting, peer, expected, seen).
template <class Side>
class CopyStep {
 public:
  /// `countsAtEnd`: several blocks read the count, until the one that carries out End.
  TUTTI_HD CopyStep(const CopyLaunch& launch, Side& side, bool countsAtEnd = false)
      : launch_(launch), side_(side), countsAtEnd_(countsAtEnd) {}

  /// False: what this thread waited for did not come, or is not what was promised.
  TUTTI_HD bool run(CopyStage stage) {
    if (stage == CopyStage::Meet && side_.hasGivenUp()) return false;
    tellAll(stage);
    return awaitAll(stage);
  }

  /// Begin as another block of the kernel tells of it. Only where the call is counted at its end.
  TUTTI_HD bool join() {
    call_ = side_.load(&launch_.state->count) + 1;
    return awaitAll(CopyStage::Begin);
  }
  /// The half that others wait for, behind all that was stored for them.
  TUTTI_HD void tellAll(CopyStage stage) {
    const bool begins = stage == CopyStage::Begin;
    const bool meets = stage == CopyStage::Meet;
    if (begins || call_ == 0) call_ = side_.load(&launch_.state->count) + (begins || meets || countsAtEnd_ ? 1 : 0);
    side_.meet();
    side_.fence();  // what was on the stream before is seen by whoever sees the flag
    for (int peer = side_.thread(); peer < launch_.ranks; peer += side_.threads())
      if (has(begins ? launch_.writers : launch_.written, peer)) tell(stage, peer, call_);
    if (side_.thread() != 0) return;
    if (meets || begins != countsAtEnd_) side_.store(&launch_.state->count, call_);
    if (begins) side_.post();
  }
  /// Of the stage that has told.
  TUTTI_HD bool awaitAll(CopyStage stage) {
    bool isWell = true;
    for (int peer = side_.thread(); peer < launch_.ranks; peer += side_.threads())
      if (has(stage == CopyStage::Begin ? launch_.written : launch_.writers, peer)) isWell = await(stage, peer, call_) && isWell;
    return isWell;
  }

 private:
  TUTTI_HD static bool has(uint32_t bits, int peer) { return (bits >> peer & 1) != 0; }

  TUTTI_HD void tell(CopyStage stage, int peer, uint64_t call) {
    CopyFlag* const flag = launch_.theirs[peer];
    if (stage == CopyStage::Begin)
      side_.store(&flag->ready, readyWord(call, launch_.place));
    else
      side_.store(&flag->arrived, call);
  }

  TUTTI_HD bool await(CopyStage stage, int peer, uint64_t call) {
    const CopyFlag& flag = launch_.own[peer];
    if (stage != CopyStage::Begin)
      return side_.await(Waiting::ForCopies, peer, call, [&](uint64_t& seen) { return (seen = side_.loadAcquire(&flag.arrived)) >= call; });
    const uint32_t number = static_cast<uint32_t>(call);
    const bool hasCome = side_.await(Waiting::ForLeave, peer, number, [&](uint64_t& seen) {
      seen = side_.loadAcquire(&flag.ready) >> 32;
      return seen == number;
    });
    if (!hasCome) return false;
    const auto seen = static_cast<uint32_t>(side_.loadAcquire(&flag.ready));
    if (seen == launch_.placeOf[peer]) return true;
    side_.report(Waiting::OtherPlace, peer, launch_.placeOf[peer], seen);
    return false;
  }

  const CopyLaunch& launch_;
  Side& side_;
  const bool countsAtEnd_;
  uint64_t call_ = 0;  ///< its number; 0: not read yet
};

}  // namespace tutti::exec::cuda
