// A lane with roles: one block of workers that move data, a warp that waits ahead of them and a warp that signals behind. A slice of a pipe
// travels in pieces, one slot each, so that a neighbour works on the first while the last is still under way.
//
//   waiter     goes through the program, waits for slots, data and arrivals, writes a job on a desk    ─ "ready" ─► workers
//   workers    carry the job out                                                                       ─ "moved" ─► signaller
//   signaller  fences and tells the peers "filled", "freed", "arrived" and other lanes "given"
//
// 1. Desk n % kDesks is written again only after the workers have met the signaller for desk n + 2, which it joins when it is done with n.
// 2. After a wait that gave up nothing is moved or signalled any more: the next desk ends the work.
#pragma once

#include "exec/cuda/block.cuh"

namespace tutti::exec::cuda {

struct Desk {
  Job job;
  uint64_t* signal[2 * kMostFan];
  uint64_t value[2 * kMostFan];
  int32_t signals;
  bool isEnd;
};
inline constexpr int kDesks = 4;

struct RoleShared : BlockShared {
  PipeEnd ends[kMostEnds];
  Desk desk[kDesks];
};

/// `Kind` says which protocol its pipes have (kProtocol), how many workers there are (kWorkers), what they share (Shared, a RoleShared),
/// how it begins (begin) and how they carry a job out (runJob).
template <class Kind>
class RoleLane {
 public:
  static constexpr int kWorkers = Kind::kWorkers;
  static constexpr int kThreads = kWorkers + 64;

  __device__ __forceinline__ RoleLane(const Launch& launch, typename Kind::Shared& shared) : launch_(launch), shared_(shared) {
    Kind::begin(shared);
  }

  __device__ __forceinline__ void run(const Place& place) {
    place_ = place;
    turn_ = 0;
    given_ = taken_ = epoch_ = 0;
    usesWindow_ = false;
    PipeEnd* const ends = launch_.comm.pipes.ends + place.pipeChannel * kMostEnds;
    constexpr int kWords = kMostEnds * static_cast<int>(sizeof(PipeEnd) / sizeof(uint64_t));
    for (int i = threadIdx.x; i < kWords; i += kThreads)
      reinterpret_cast<uint64_t*>(shared_.ends)[i] = reinterpret_cast<uint64_t*>(ends)[i];
    __syncthreads();
    const uint64_t doneBefore = threadIdx.x < kMostEnds ? shared_.ends[threadIdx.x].done : 0;
    resolvePeers(shared_.program, place.steps, shared_.ends);
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < kWorkers) {
      work();
    } else if (static_cast<int>(threadIdx.x) < kWorkers + 32) {
      signal();
    } else {
      waitAhead();
    }
    __syncwarp();  // the waiter's first lane has had more to do than the others
    __syncthreads();
    if (shared_.context.failed == 0 && threadIdx.x < kMostEnds && shared_.ends[threadIdx.x].done != doneBefore)
      ends[threadIdx.x].done = shared_.ends[threadIdx.x].done;
  }

 private:
  static constexpr int kReady = 1;  ///< barrier of the waiter and the workers
  static constexpr int kMoved = 2;  ///< barrier of the workers and the signaller
  static constexpr bool kIsFlagged = Kind::kProtocol != Protocol::Simple;

  // ---- workers -----------------------------------------------------------------------------------------------------------

  __device__ __forceinline__ void work() {
    for (uint32_t turn = 0;; ++turn) {
      arch::barrier(kReady, kWorkers + 32);
      const Desk& desk = shared_.desk[turn % kDesks];
      const bool isEnd = desk.isEnd;
      if (!isEnd && !shared_.context.hasFailed()) Kind::runJob(desk.job, shared_);
      arch::barrier(kMoved, kWorkers + 32);
      if (isEnd) return;
    }
  }

  // ---- signaller ---------------------------------------------------------------------------------------------------------

  __device__ __forceinline__ void signal() {
    const int i = static_cast<int>(threadIdx.x) - kWorkers;
    for (uint32_t turn = 0;; ++turn) {
      arch::barrier(kMoved, kWorkers + 32);
      const Desk& desk = shared_.desk[turn % kDesks];
      if (desk.isEnd) return;
      if (i < desk.signals && !shared_.context.hasFailed()) {
        arch::fenceAcqRelSys();
        arch::storeRelaxedSys(desk.signal[i], desk.value[i]);
      }
    }
  }

  // ---- waiter ------------------------------------------------------------------------------------------------------------

  static __device__ __forceinline__ int self() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ __forceinline__ Desk& desk() const { return shared_.desk[turn_ % kDesks]; }
  __device__ __forceinline__ void post(bool isEnd) {
    if (self() == 0) desk().isEnd = isEnd;
    arch::barrier(kReady, kWorkers + 32);
    ++turn_;
  }

  __device__ __forceinline__ void waitAhead() {
    const WindowView& window = launch_.comm.window;
    const Program& program = shared_.program;
    if (window.epochs != nullptr) epoch_ = arch::loadRelaxedSys(window.epochs + place_.pipeChannel);
    const uint64_t before = epoch_;
    for (slice_ = 0; slice_ < shared_.work.geometry.slices && !shared_.context.hasFailed(); ++slice_) {
      for (int i = 0; i < program.steps && !shared_.context.hasFailed(); ++i) i += runStep(i);
      epoch_ += program.rounds;
    }
    post(true);
    if (self() != 0 || shared_.context.failed != 0) return;
    if (usesWindow_) window.epochs[place_.pipeChannel] = before + static_cast<uint64_t>(shared_.work.geometry.slices) * program.rounds;
    if (taken_ != 0) handOver(place_.lane).taken = taken_;
  }

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
    const uint64_t carried = s.froms + s.tos == 0 ? max(bytes, uint64_t{1}) : carriedBytes(Kind::kProtocol, launch_.comm.pipes.slotBytes);
    uint64_t at = 0;
    do {
      openPipes(s);
      if (self() == 0) {
        const uint64_t left = bytes - at;
        makePipeJob(s, place(s.srcBuffer, own.begin * elementBytes + at), place(s.dstBuffer, out.begin * elementBytes + at),
                    min(left, carried));
      }
      if (__any_sync(0xffffffffu, shared_.context.hasFailed())) return;
      post(false);
      at += carried;
    } while (at < bytes);
  }

  __device__ __forceinline__ void makePipeJob(const ProgramStep& s, std::byte* own, std::byte* out, uint64_t bytes) {
    const Numbers& numbers = shared_.context.numbers;
    Desk& d = desk();
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
    d.signals = s.froms + (kIsFlagged ? 0 : s.tos);
  }
  __device__ __forceinline__ void setMove(Job& job, bool reduces) {
    job.isMove = !reduces || (job.sources == 1 && job.scaledSources == 0 && !(job.isLast && shared_.context.numbers.divisor > 1));
  }

  /// A thread for each pipe of the step.
  __device__ __forceinline__ void openPipes(const ProgramStep& s) {
    if (self() == 0) desk().job.rewriteBytes = 0;
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
    Desk& d = desk();
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
    Desk& d = desk();
    d.job.target[target] = slot(*end, done);
    d.job.targetFlag[target] = done + 1;
    if (Kind::kProtocol == Protocol::Cells && (done + 1) % kRewriteEvery < slots) d.job.rewriteBytes = launch_.comm.pipes.slotBytes;
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
      desk().signal[0] = &handOver(lane).given;
      desk().value[0] = given_;
      desk().signals = 1;
    }
    post(false);
  }
  __device__ __forceinline__ void take() {
    if (taken_ == 0) taken_ = handOver(place_.lane).taken;
    ++taken_;
    if (self() == 0) awaitCount(Waiting::ForHandOver, place_.lane, &handOver(place_.lane).given, taken_);
    __syncwarp();
  }
  __device__ __forceinline__ void emptyJob() {
    Job& job = desk().job;
    job.bytes = 0;
    job.sources = job.targets = 0;
    job.flaggedSources = job.flaggedTargets = job.scaledSources = 0;
    job.rewriteBytes = 0;
    job.isMove = true;
    job.step = step_;
  }

  // ---- windows with arrivals ---------------------------------------------------------------------------------------------

  __device__ __forceinline__ int runWindow(const ProgramStep& s, int i) {
    if constexpr (Kind::kProtocol != Protocol::Simple) {
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
      post(false);
      return tells ? 1 : 0;
    }
  }
  __device__ __forceinline__ void makeWindowJob(const ProgramStep& s, uint64_t epoch, bool tells) {
    const WindowView& window = launch_.comm.window;
    const Numbers& numbers = shared_.context.numbers;
    const int32_t ranks = launch_.comm.ranks;
    emptyJob();
    Job& job = desk().job;
    desk().signals = tells ? 1 : 0;
    if (tells) {
      desk().signal[0] = window.arrival(s.to[0], rank(), place_.pipeChannel);
      desk().value[0] = epoch;
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

  const Launch& launch_;
  typename Kind::Shared& shared_;
  Place place_;
  // The waiter's alone, from here on.
  uint32_t turn_ = 0;
  int32_t slice_ = 0;
  int32_t step_ = 0;
  uint64_t epoch_ = 0;
  uint64_t given_ = 0;
  uint64_t taken_ = 0;
  bool usesWindow_ = false;
};

}  // namespace tutti::exec::cuda
