// A lane whose data streams through shared memory by the bulk copy engine, so that a few blocks keep a link busy: while hunks of one job
// are stored, those of the next are loaded.
//
//   waiter    goes through the program and posts jobs on desks (waiting_lane.cuh)
//   loader    one thread: brings the hunks of all sources into stages
//   workers   combine hunks in their stages, if there is anything to combine; carry out what the engine cannot
//   storers   a thread of each of kStorers warps, in turns: copies hunks to the targets, waits until they are there, then the warp signals
//
// 1. Jobs overlap: a later one is loaded before an earlier one is stored, unless it touches what that one touches (conflictsWith).
// 2. A job with an address that is no multiple of 16, or with too many hunks, is carried out by the workers, when all
//    before it is told.
// 3. Memory that ordinary accesses have written, of this block or of a peer that has said so, is read by the engine only after a fence
//    between the two (fenceProxyAsync): by the writer where it is this block, by the loader where it is a peer.
#pragma once

#include "exec/cuda/stages.cuh"
#include "exec/cuda/waiting_lane.cuh"

namespace tutti::exec::cuda {

struct StreamDesk : Desk {
  bool isStreamed;  ///< it goes through the stages
};

/// Where a job that may be under way reads and writes; the loader's.
struct Touched {
  const std::byte* source[kMostSources];
  const std::byte* target[kMostTargets];
  uint64_t bytes;
  int32_t sources;
  int32_t targets;
};

struct StreamShared : BlockShared {
  PipeEnd ends[kMostEnds];
  StreamDesk desk[kStreamDesks];
  Touched touched[kStreamDesks];  ///< by desk
  StageBarriers barriers;
};

inline constexpr int kStreamWorkers = 256;
inline constexpr int kStreamThreads = kStreamWorkers + 32 * (2 + static_cast<int>(kStorers));

template <DataType kType>
class StreamLane : public WaitingLane<StreamLane<kType>, StreamShared, Protocol::Simple, kStreamThreads> {
  using Waiter = WaitingLane<StreamLane<kType>, StreamShared, Protocol::Simple, kStreamThreads>;
  friend Waiter;

 public:
  static constexpr int kWorkers = kStreamWorkers;

  __device__ __forceinline__ StreamLane(const Launch& launch, StreamShared& shared) : Waiter(launch, shared) {
    initStages(shared.barriers, kWorkers);
  }

 private:
  using Waiter::self;
  using Waiter::shared_;

  __device__ __forceinline__ void runRoles() {
    if constexpr (arch::kHasBulk) {
      const int warp = static_cast<int>(threadIdx.x) / 32 - kWorkers / 32;
      if (warp < 0) {
        work();
      } else if (warp == 0) {
        load();
      } else if (warp <= static_cast<int>(kStorers)) {
        store(static_cast<uint32_t>(warp - 1));
      } else {
        this->waitAhead();
      }
    }
  }

  __device__ __forceinline__ StageBarriers& barriers() const { return shared_.barriers; }
  __device__ __forceinline__ StreamDesk& deskOf(uint32_t turn) const { return shared_.desk[turn % kStreamDesks]; }
  /// A job by the number of its desk, when it is posted.
  __device__ __forceinline__ const StreamDesk& awaitDesk() const {
    awaitEvent(barriers().posted, turn_);
    return deskOf(turn_);
  }
  /// Until all desks before this one are told.
  __device__ __forceinline__ void awaitTold() const {
    if (turn_ > 0) awaitEvent(barriers().told, turn_ - 1);
  }

  // ---- waiter ------------------------------------------------------------------------------------------------------------

  __device__ __forceinline__ Desk& desk() const { return deskOf(turn_); }
  __device__ __forceinline__ void post(bool isEnd) {
    __syncwarp();
    if (self() == 0) {
      StreamDesk& d = deskOf(turn_);
      d.isEnd = isEnd;
      d.isStreamed = !isEnd && isVectorAligned(d.job) && Hunks(d.job).fit();
    }
    tellEvent(barriers().posted, turn_);
    ++turn_;
    if (turn_ >= kStreamDesks) awaitEvent(barriers().released, turn_ - kStreamDesks);
  }

  // ---- loader ------------------------------------------------------------------------------------------------------------

  __device__ __forceinline__ void load() {
    for (bool isEnd = false; !isEnd; ++turn_) {
      const StreamDesk& d = awaitDesk();
      isEnd = d.isEnd;
      if (self() == 0) touch(d);
      __syncwarp();  // the other lanes look at it before the next job
      if (!isEnd && d.isStreamed) {
        awaitConflicts(d.job);
        if (self() == 0) loadHunks(d.job);
        at_.pass(d.job, Hunks(d.job));
      }
      tellEvent(barriers().released, turn_);
    }
  }
  __device__ __forceinline__ void loadHunks(const Job& job) {
    const Hunks hunks(job);
    arch::fenceProxyAsync();
    uint32_t n = at_.stage;
    for (uint32_t h = 0; h < hunks.count; ++h) {
      for (uint32_t s = 0; s < hunks.sources; ++s, ++n) {
        if (n >= kStages) awaitEvent(barriers().empty, n - kStages);
        uint64_t* const full = &barriers().full[n % kHunkRing];
        arch::expectBytes(full, hunks.bytesOf(h));
        arch::bulkLoad(stage(n), job.source[s] + Hunks::at(h), hunks.bytesOf(h), full);
      }
    }
  }

  __device__ __forceinline__ void touch(const StreamDesk& d) {
    Touched& t = shared_.touched[turn_ % kStreamDesks];
    t.bytes = d.isEnd ? 0 : d.job.bytes;
    if (t.bytes == 0) return;
    t.sources = d.job.sources;
    t.targets = d.job.targets;
    for (int i = 0; i < d.job.sources; ++i) t.source[i] = d.job.source[i];
    for (int i = 0; i < d.job.targets; ++i) t.target[i] = d.job.target[i];
  }
  static __device__ __forceinline__ bool meet(const std::byte* a, uint64_t bytesOfA, const std::byte* b, uint64_t bytesOfB) {
    return a < b + bytesOfB && b < a + bytesOfA;
  }
  static __device__ __forceinline__ bool conflictsWith(const Job& job, const Touched& before) {
    if (before.bytes == 0 || job.bytes == 0) return false;
    for (int t = 0; t < before.targets; ++t) {
      for (int s = 0; s < job.sources; ++s)
        if (meet(before.target[t], before.bytes, job.source[s], job.bytes)) return true;
      for (int u = 0; u < job.targets; ++u)
        if (meet(before.target[t], before.bytes, job.target[u], job.bytes)) return true;
    }
    for (int s = 0; s < before.sources; ++s)
      for (int u = 0; u < job.targets; ++u)
        if (meet(before.source[s], before.bytes, job.target[u], job.bytes)) return true;
    return false;
  }
  /// A lane for each desk that may be under way.
  __device__ __forceinline__ void awaitConflicts(const Job& job) const {
    const auto back = static_cast<uint32_t>(self());
    if (back > 0 && back < kStreamDesks && back <= turn_ && conflictsWith(job, shared_.touched[(turn_ - back) % kStreamDesks]))
      awaitEvent(barriers().told, turn_ - back);
    __syncwarp();
  }

  // ---- workers -----------------------------------------------------------------------------------------------------------

  __device__ __forceinline__ void work() {
    for (bool isEnd = false; !isEnd;) {
      const StreamDesk& d = awaitDesk();
      isEnd = d.isEnd;
      if (!isEnd) carryOut(d);
      tellEvent(barriers().joined, turn_);
      tellEvent(barriers().released, turn_);
      ++turn_;
    }
  }
  __device__ __forceinline__ void carryOut(const StreamDesk& d) {
    const Job& job = d.job;
    if (job.bytes == 0) return;
    uint64_t done = 0;
    if (d.isStreamed) {
      const Hunks hunks(job);
      if (!job.isMove) runLoop<StageFold, kType>(job, shared_.context, barriers(), at_);
      at_.pass(job, hunks);
      if (hunks.bytes == job.bytes) return;
      done = hunks.bytes;
    }
    awaitTold();
    if (shared_.context.hasFailed()) return;
    if (job.isMove) {
      Words<MovePass>::run(MovePass{job, shared_.context.numbers.elementBytes}, job, done);
    } else {
      runLoop<FoldWords, kType>(job, shared_.context, done);
    }
    arch::fenceProxyAsync();
  }
  /// What does not go through the stages: a job whose memory is not aligned, or what is behind its last whole vector.
  template <class Pass>
  struct Words {
    static __device__ __forceinline__ void run(const Pass& pass, const Job& job, uint64_t from) {
#pragma unroll 1
      for (uint64_t at = from + 8 * static_cast<uint64_t>(threadIdx.x); at < job.bytes; at += 8 * kWorkers) pass.word(at);
    }
  };
  template <DataType kOfType, ReduceOp kOp>
  struct FoldWords {
    static __device__ __forceinline__ void run(const Job& job, LoopContext& context, const uint64_t& from) {
      using Pass = FoldPass<kOfType, kOp>;
      Words<Pass>::run(Pass{job, context.numbers}, job, from);
    }
  };

  // ---- storers -----------------------------------------------------------------------------------------------------------

  __device__ __forceinline__ void store(uint32_t which) {
    for (bool isEnd = false; !isEnd; ++turn_) {
      const StreamDesk& d = awaitDesk();
      isEnd = d.isEnd;
      const bool isMine = turn_ % kStorers == which;
      if (!isEnd && d.isStreamed) {
        if (isMine && self() == 0) storeHunks(d.job);
        at_.pass(d.job, Hunks(d.job));
      }
      if (isMine) tell(d);
      tellEvent(barriers().released, turn_);
    }
  }
  __device__ __forceinline__ void storeHunks(const Job& job) {
    const Hunks hunks(job);
    for (uint32_t h = 0; h < hunks.count; ++h) {
      const uint32_t n = at_.stage + h * hunks.sources;
      if (job.isMove) {
        awaitEvent(barriers().full, n);
      } else {
        awaitEvent(barriers().folded, at_.fold + h);
      }
      for (int t = 0; t < job.targets; ++t) arch::bulkStore(job.target[t] + Hunks::at(h), stage(n), hunks.bytesOf(h));
      arch::commitStores();
      if (hunks.areTight() || h + 1 == hunks.count) {
        arch::awaitStoresRead<0>();
        empty(n, hunks.sources);
      } else if (h > 0) {
        arch::awaitStoresRead<1>();
      }
      if (!hunks.areTight() && h > 0) empty(n - hunks.sources, hunks.sources);
    }
    arch::awaitStores();
  }
  __device__ __forceinline__ void empty(uint32_t first, uint32_t count) const {
    for (uint32_t n = first; n < first + count; ++n) tellEvent(barriers().empty, n);
  }
  /// All that the desk moves is there: its signals, behind those of the desk before.
  __device__ __forceinline__ void tell(const StreamDesk& d) {
    __syncwarp();
    awaitEvent(barriers().joined, turn_);
    awaitTold();
    if (!d.isEnd && self() < d.signals && !shared_.context.hasFailed()) {
      arch::fenceAcqRelSys();
      arch::storeRelaxedSys(d.signal[self()], d.value[self()]);
    }
    tellEvent(barriers().told, turn_);
  }

  // Of each role for itself: desks and hunks since the kernel began.
  uint32_t turn_ = 0;
  StreamPlace at_;
};

}  // namespace tutti::exec::cuda
