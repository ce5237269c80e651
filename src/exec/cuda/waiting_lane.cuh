// The warp of a lane that goes through its program: it waits for slots, data and arrivals, and makes of every step the jobs that others of
// the block carry out.
//
// A job is written on a desk. `Self`, which is derived from this, says which desk is the next (desk), hands it on (post), and runs the
// other roles (runRoles).
// 1. Slots, and what a signal tells of, are counted when the job is made; signals are sent in the order of the desks when all that was
//    moved before is visible, or, those that free slots (Desk::frees), when it has been read.
// 2. After a wait that gave up no job is made: the next desk ends the work.
#pragma once

#include "exec/cuda/block.cuh"

namespace tutti::exec::cuda {

struct Desk {
  Job job;
  uint64_t* signal[2 * kMostFan];
  uint64_t value[2 * kMostFan];
  int32_t frees;  ///< of the signals, from the first on: they say that slots have been read, the others that memory has been written
  int32_t signals;
  bool isEnd;
};

/// How much is copied at a time where no pipe says so.
inline constexpr uint64_t kOwnPieceBytes = 448 << 10;

/// `Shared` is a BlockShared that has `ends`, for kMostEnds pipes; kThreads are all of the block.
template <class Self, class Shared, Protocol kProtocol, int kThreads>
class WaitingLane {
 public:
  __device__ __forceinline__ WaitingLane(const Launch& launch, Shared& shared) : launch_(launch), shared_(shared) {}

  __device__ __forceinline__ void run(const Place& place) {
    place_ = place;
    given_ = taken_ = epoch_ = 0;
    usesWindow_ = false;
    PipeEnd* const ends = launch_.comm.pipes.ends + place.pipeChannel * kMostEnds;
    constexpr int kWords = kMostEnds * static_cast<int>(sizeof(PipeEnd) / sizeof(uint64_t));
    for (int i = threadIdx.x; i < kWords; i += kThreads)
      reinterpret_cast<uint64_t*>(shared_.ends)[i] = reinterpret_cast<uint64_t*>(ends)[i];
    arch::barrierOfBlock();
    const uint64_t doneBefore = threadIdx.x < kMostEnds ? shared_.ends[threadIdx.x].done : 0;
    resolvePeers(shared_.program, place.steps, shared_.ends);
    arch::barrierOfBlock();
    derived().runRoles();
    arch::barrierOfBlock();  // the waiter's first lane has had more to do than the others
    if (shared_.context.failed == 0 && threadIdx.x < kMostEnds && shared_.ends[threadIdx.x].done != doneBefore)
      ends[threadIdx.x].done = shared_.ends[threadIdx.x].done;
  }

 protected:
  static constexpr bool kIsFlagged = kProtocol != Protocol::Simple;

  static __device__ __forceinline__ int self() { return static_cast<int>(threadIdx.x) % 32; }

  /// All lanes of the waiter's warp.
  __device__ __forceinline__ void waitAhead() {
    const WindowView& window = launch_.comm.window;
    const Program& program = shared_.program;
    if (window.epochs != nullptr) epoch_ = arch::loadRelaxedSys(window.epochs + place_.pipeChannel);
    const uint64_t before = epoch_;
    for (slice_ = 0; slice_ < shared_.work.geometry.slices && !shared_.context.hasFailed(); ++slice_) {
      for (int i = 0; i < program.steps && !shared_.context.hasFailed(); ++i) i += runStep(i);
      epoch_ += program.rounds;
    }
    derived().post(true);
    if (self() != 0 || shared_.context.failed != 0) return;
    if (usesWindow_) window.epochs[place_.pipeChannel] = before + static_cast<uint64_t>(shared_.work.geometry.slices) * program.rounds;
    if (taken_ != 0) handOver(place_.lane).taken = taken_;
  }

 private:
  /// How many of the following steps it has carried out as well.
  __device__ __forceinline__ int runStep(int i) {
    const ProgramStep& s = shared_.program.step[i];
    step_ = i;
    switch (s.kind) {
      case algo::Kind::Pipe: runPipe(s); return 0;
      case algo::Kind::Give: give(s.lane); return 0;
      case algo::Kind::Take: take(); return 0;
      default: return runWindow(s, i);
    }
  }

  __device__ __forceinline__ void runPipe(const ProgramStep& s) {
    const algo::Range own = rangeOf(s.srcChunk);
    const algo::Range out = rangeOf(s.dstChunk);
    const uint64_t elementBytes = shared_.context.numbers.elementBytes;
    // A source without a buffer only says how much is received.
    const bool isOut = s.srcBuffer == algo::Buffer::None && s.dstBuffer != algo::Buffer::None;
    const uint64_t bytes = (isOut ? out.elems : own.elems) * elementBytes;
    const uint64_t carried = s.froms + s.tos == 0 ? kOwnPieceBytes : carriedBytes(kProtocol, launch_.comm.pipes.slotBytes);
    uint64_t at = 0;
    do {
      openPipes(s);
      if (self() == 0) {
        const uint64_t left = bytes - at;
        makePipeJob(s, place(s.srcBuffer, own.begin * elementBytes + at), place(s.dstBuffer, out.begin * elementBytes + at),
                    min(left, carried));
      }
      if (__any_sync(0xffffffffu, shared_.context.hasFailed())) return;
      derived().post(false);
      at += carried;
    } while (at < bytes);
  }

  __device__ __forceinline__ void makePipeJob(const ProgramStep& s, std::byte* own, std::byte* out, uint64_t bytes) {
    const Numbers& numbers = shared_.context.numbers;
    Desk& d = derived().desk();
    Job& job = d.job;
    const int hasOwn = s.srcBuffer != algo::Buffer::None ? 1 : 0;
    const int hasOut = s.dstBuffer != algo::Buffer::None ? 1 : 0;
    job.bytes = bytes;
    job.step = step_;
    job.sources = hasOwn + s.froms;
    job.targets = hasOut + s.tos;
    job.plainSource = hasOwn - 1;
    if (hasOwn) job.source[0] = own;
    if (hasOut) job.target[0] = out;
    job.flaggedSources = kIsFlagged ? ((1u << s.froms) - 1) << hasOwn : 0;
    job.flaggedTargets = kIsFlagged ? ((1u << s.tos) - 1) << hasOut : 0;
    job.scaledSources = s.reduce && numbers.hasFactor && hasOwn ? 1 : 0;
    job.isLast = s.reduce && hasOut;
    setMove(job, s.reduce);
    // Senders and receivers hear of each piece; with flags inside the data only senders need to.
    d.frees = s.froms;
    d.signals = s.froms + (kIsFlagged ? 0 : s.tos);
  }
  __device__ __forceinline__ void setMove(Job& job, bool reduces) {
    job.isMove = !reduces || (job.sources == 1 && job.scaledSources == 0 && !(job.isLast && shared_.context.numbers.divisor > 1));
  }

  /// A thread for each pipe of the step.
  __device__ __forceinline__ void openPipes(const ProgramStep& s) {
    if (self() == 0) derived().desk().job.rewriteBytes = 0;
    __syncwarp();
    if (self() < s.froms) openRecv(s, self());
    if (self() >= 16 && self() - 16 < s.tos) openSend(s, self() - 16);
    __syncwarp();
  }
  __device__ __forceinline__ void openRecv(const ProgramStep& s, int i) {
    PipeEnd* const end = endAt(s.from[i]);
    if (end == nullptr) return;
    const int source = (s.srcBuffer != algo::Buffer::None ? 1 : 0) + i;
    const uint64_t done = end->done;
    if (!kIsFlagged) awaitCount(Waiting::ForData, end->peer, end->wait, done + 1);
    Desk& d = derived().desk();
    d.job.source[source] = slot(*end, done);
    d.job.sourceFlag[source] = done + 1;
    d.job.sourcePeer[source] = end->peer;
    d.signal[i] = end->tell;
    d.value[i] = done + 1;
    end->done = done + 1;
  }
  __device__ __forceinline__ void openSend(const ProgramStep& s, int i) {
    PipeEnd* const end = endAt(s.to[i]);
    if (end == nullptr) return;
    const int target = (s.dstBuffer != algo::Buffer::None ? 1 : 0) + i;
    const uint64_t done = end->done;
    const auto slots = static_cast<uint64_t>(launch_.comm.pipes.slots);
    if (done >= slots) awaitCount(Waiting::ForSlot, end->peer, end->wait, done + 1 - slots);
    Desk& d = derived().desk();
    d.job.target[target] = slot(*end, done);
    d.job.targetFlag[target] = done + 1;
    if (kProtocol == Protocol::Cells && (done + 1) % kRewriteEvery < slots) d.job.rewriteBytes = launch_.comm.pipes.slotBytes;
    if (!kIsFlagged) {
      d.signal[s.froms + i] = end->tell;
      d.value[s.froms + i] = done + 1;
    }
    end->done = done + 1;
  }
  /// Null, and the end of the work, where a step names a pipe that was never opened.
  __device__ __forceinline__ PipeEnd* endAt(int32_t place) {
    if (place >= 0) return &shared_.ends[place];
    if (!shared_.context.hasFailed()) reportGiveUp(*shared_.context.wait, note(Waiting::None, -1), 0, 0);
    shared_.context.failed = 1;
    return nullptr;
  }
  __device__ __forceinline__ std::byte* slot(const PipeEnd& end, uint64_t number) const {
    return end.slots + number % static_cast<uint32_t>(launch_.comm.pipes.slots) * launch_.comm.pipes.slotBytes;
  }

  __device__ __forceinline__ WaitNote note(Waiting waiting, int32_t peer) const {
    return {waiting, shared_.context.rank, peer, place_.pipeChannel, step_};
  }
  __device__ __forceinline__ void awaitCount(Waiting waiting, int32_t peer, const uint64_t* word, uint64_t expected) {
    if (shared_.context.hasFailed()) return;
    const bool ok = waitUntil(launch_.comm.wait, note(waiting, peer), expected, [&](uint64_t& seen) {
      seen = arch::loadAcquireSys(word);
      return seen >= expected;
    });
    if (!ok) shared_.context.failed = 1;
  }

  // ---- hand-over between lanes -------------------------------------------------------------------------------------------

  __device__ __forceinline__ HandOver& handOver(int lane) const {
    return launch_.comm.pipes.handOver[place_.pipeChannel * kHandOverLanes + lane];
  }
  __device__ __forceinline__ void give(int lane) {
    if (given_ == 0) given_ = arch::loadRelaxedSys(&handOver(lane).given);
    ++given_;
    if (self() == 0) {
      emptyJob();
      derived().desk().signal[0] = &handOver(lane).given;
      derived().desk().value[0] = given_;
      derived().desk().signals = 1;
    }
    derived().post(false);
  }
  __device__ __forceinline__ void take() {
    if (taken_ == 0) taken_ = handOver(place_.lane).taken;
    ++taken_;
    if (self() == 0) awaitCount(Waiting::ForHandOver, place_.lane, &handOver(place_.lane).given, taken_);
    __syncwarp();
  }
  __device__ __forceinline__ void emptyJob() {
    derived().desk().frees = 0;
    Job& job = derived().desk().job;
    job.bytes = 0;
    job.sources = job.targets = 0;
    job.flaggedSources = job.flaggedTargets = job.scaledSources = 0;
    job.rewriteBytes = 0;
    job.isMove = true;
    job.step = step_;
  }

  // ---- windows with arrivals ---------------------------------------------------------------------------------------------

  __device__ __forceinline__ int runWindow(const ProgramStep& s, int i) {
    if constexpr (kProtocol != Protocol::Simple) {
      return 0;
    } else {
      usesWindow_ = true;
      const uint64_t epoch = epoch_ + s.round + 1;
      if (s.kind == algo::Kind::Await) {
        if (self() == 0)
          awaitCount(Waiting::ForArrival, s.from[0], launch_.comm.window.arrival(rank(), s.from[0], place_.pipeChannel), epoch);
        __syncwarp();
        return 0;
      }
      // The arrival that follows a store goes with it.
      const bool tells = s.kind == algo::Kind::Store && i + 1 < shared_.program.steps &&
                         shared_.program.step[i + 1].kind == algo::Kind::Arrive && shared_.program.step[i + 1].to[0] == s.to[0];
      if (self() == 0) makeWindowJob(s, epoch, tells || s.kind == algo::Kind::Arrive);
      derived().post(false);
      return tells ? 1 : 0;
    }
  }
  __device__ __forceinline__ void makeWindowJob(const ProgramStep& s, uint64_t epoch, bool tells) {
    const WindowView& window = launch_.comm.window;
    const Numbers& numbers = shared_.context.numbers;
    const int32_t ranks = launch_.comm.ranks;
    emptyJob();
    Job& job = derived().desk().job;
    derived().desk().signals = tells ? 1 : 0;
    if (tells) {
      derived().desk().signal[0] = window.arrival(s.to[0], rank(), place_.pipeChannel);
      derived().desk().value[0] = epoch;
    }
    if (s.kind == algo::Kind::Arrive) return;
    const bool hasOut = s.dstBuffer != algo::Buffer::None;
    const algo::Range range = rangeOf(hasOut ? s.dstChunk : s.srcChunk);
    std::byte* const own = place(s.srcBuffer, rangeOf(s.srcChunk).begin * numbers.elementBytes);
    std::byte* const out = place(s.dstBuffer, range.begin * numbers.elementBytes);
    job.bytes = range.elems * numbers.elementBytes;
    job.sources = job.targets = 1;
    job.source[0] = own;
    job.target[0] = out;
    job.isLast = s.reduce && hasOut;
    job.scaledSources = s.reduce && numbers.hasFactor ? 1 : 0;
    if (s.kind == algo::Kind::Store) job.target[0] = window.share(s.to[0], epoch, rank(), ranks, place_.pipeChannel);
    if (s.kind == algo::Kind::Load) job.source[0] = window.share(rank(), epoch, s.from[0], ranks, place_.pipeChannel);
    if (s.kind == algo::Kind::LoadReduce) {
      job.sources = ranks;
      job.scaledSources <<= rank();
      for (int32_t r = 0; r < ranks; ++r) job.source[r] = r == rank() ? own : window.share(rank(), epoch, r, ranks, place_.pipeChannel);
    }
    setMove(job, s.reduce);
  }

  __device__ __forceinline__ int32_t rank() const { return shared_.context.rank; }
  __device__ __forceinline__ algo::Range rangeOf(int32_t chunk) const { return shared_.work.geometry.range(chunk, place_.channel, slice_); }
  __device__ __forceinline__ std::byte* place(algo::Buffer buffer, uint64_t offset) const {
    return (buffer == algo::Buffer::In ? const_cast<std::byte*>(shared_.work.in) : shared_.work.out) + offset;
  }

 protected:
  const Launch& launch_;
  Shared& shared_;

 private:
  __device__ __forceinline__ Self& derived() { return static_cast<Self&>(*this); }

  Place place_;
  // The waiter's alone, from here on.
  int32_t slice_ = 0;
  int32_t step_ = 0;
  uint64_t epoch_ = 0;
  uint64_t given_ = 0;
  uint64_t taken_ = 0;
  bool usesWindow_ = false;
};

}  // namespace tutti::exec::cuda
