// A lane that carries out pipe verbs: one thread block of `Shape::kWorkers` threads that move data, a warp that waits ahead and
// a warp that signals behind. A slice travels in pieces, one slot each, so that a neighbour works on the first while the last is
// still under way; all three roles run the same program.
//
//   waiter     polls the pipes of piece n + 1, writes the slots' addresses on the piece's desk    ─ "ready" ─► workers
//   workers    run the data loop of piece n                                                       ─ "moved" ─► signaller
//   signaller  fences and tells receivers "filled" and senders "freed" of piece n
//
// 1. Desk n % kDesks is written again only after the workers have met the signaller for piece n + 2, which it joins when it is done with n.
// 2. After a wait that gave up no piece is moved or signalled any more, but all barriers are kept.
#pragma once

#include "algo/lane.h"
#include "exec/cuda/launch.h"
#include "exec/cuda/reduce_copy.cuh"
#include "exec/cuda/wait.cuh"

namespace tutti::exec::cuda {

template <int kWorkerThreads, int kLoadsInFlight>
struct PipeShape {
  static constexpr int kWorkers = kWorkerThreads;
  static constexpr int kUnroll = kLoadsInFlight;  ///< 16-byte loads of each operand in flight per thread
  static constexpr int kThreads = kWorkers + 64;
  static_assert(kWorkers % 32 == 0 && kThreads <= 1024);
};

/// Shared memory of a pipe lane. The counters are the waiter's alone between the beginning and the end of a launch.
struct PipeShared {
  struct Desk {
    std::byte* recv[kMostFan];
    std::byte* send[kMostFan];
    uint64_t* signal[2 * kMostFan];  ///< freed words of `recv`, then filled words of `send`
    uint64_t value[2 * kMostFan];
  };
  static constexpr int kDesks = 4;
  LanePipes pipes;
  uint64_t recvDone[kMaxPipeEnds];
  uint64_t sendDone[kMaxPipeEnds];
  Desk desk[kDesks];
  uint32_t failed;  // the waiter sets it before "ready"; the others read it after
};

/// `Reduction` is a WordReduction, `Shape` a PipeShape.
template <class Reduction, class Shape>
class PipeLane : public algo::LocalVerbs<PipeLane<Reduction, Shape>>, public algo::PipeVerbs<PipeLane<Reduction, Shape>> {
 public:
  using Launch = PipeLaunch;
  using Shared = PipeShared;
  static constexpr int kThreads = Shape::kThreads;

  __device__ __forceinline__ PipeLane(const Launch& launch, Shared& shared, int32_t channel, int32_t lane, int32_t lanes)
      : launch_(launch), shared_(shared), channel_(channel) {
    const LanePipes& mine = launch.pipes.lanes[channel * lanes + lane];
    constexpr int kWords = sizeof(LanePipes) / sizeof(uint64_t);
    static_assert(sizeof(LanePipes) % sizeof(uint64_t) == 0);
    for (int i = threadIdx.x; i < kWords; i += kThreads)
      reinterpret_cast<uint64_t*>(&shared.pipes)[i] = reinterpret_cast<const uint64_t*>(&mine)[i];
    if (threadIdx.x == 0) shared.failed = 0;
    __syncthreads();
    const int end = threadIdx.x;
    if (end < shared.pipes.recvs) shared.recvDone[end] = *shared.pipes.recv[end].done;
    if (end < shared.pipes.sends) shared.sendDone[end] = *shared.pipes.send[end].done;
    __syncthreads();
  }

  __device__ __forceinline__ void beginSlice(int32_t slice) { slice_ = slice; }

  __device__ __forceinline__ void run(const algo::Step& s) {
    const bool hasOwn = s.src.buffer != algo::Buffer::None;
    const algo::Range own = rangeOf(s.src);
    const algo::Range out = rangeOf(s.dst);
    const int32_t pieces = piecesOf(hasOwn ? own.elems : out.elems);
    for (int32_t piece = 0; piece < pieces; ++piece) {
      PipeShared::Desk& desk = shared_.desk[turn_ % PipeShared::kDesks];
      ++turn_;
      if (isWaiter()) {
        open(s, desk);
        arch::barrier(kReady, Shape::kWorkers + 32);
      } else if (isSignaller()) {
        arch::barrier(kMoved, Shape::kWorkers + 32);
        signal(s, desk);
      } else {
        arch::barrier(kReady, Shape::kWorkers + 32);
        if (shared_.failed == 0) move(s, desk, pieceOf(own, piece), pieceOf(out, piece));
        arch::barrier(kMoved, Shape::kWorkers + 32);
      }
    }
  }

  __device__ __forceinline__ void finish() {
    __syncthreads();
    const int end = threadIdx.x;
    if (shared_.failed != 0) return;
    if (end < shared_.pipes.recvs) *shared_.pipes.recv[end].done = shared_.recvDone[end];
    if (end < shared_.pipes.sends) *shared_.pipes.send[end].done = shared_.sendDone[end];
  }

 private:
  static constexpr int kReady = 1;  ///< barrier of the waiter and the workers
  static constexpr int kMoved = 2;  ///< barrier of the workers and the signaller
  static __device__ __forceinline__ bool isSignaller() { return threadIdx.x / 32 == Shape::kWorkers / 32; }
  static __device__ __forceinline__ bool isWaiter() { return threadIdx.x / 32 == Shape::kWorkers / 32 + 1; }

  /// A thread for each pipe of the step. Unrolled, so that a step's peers stay in registers.
  __device__ __forceinline__ void open(const algo::Step& s, PipeShared::Desk& desk) {
    if (s.from.count > kMostFan || s.to.count > kMostFan) __trap();  // rather than a sum without some ranks
    const int thread = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kMostFan; ++i) {
      if (i < s.from.count && thread == i) openRecv(s, i, desk);
      if (i < s.to.count && thread == i + kMostFan) openSend(s, i, desk);
    }
    __syncwarp();
  }
  __device__ __forceinline__ void openRecv(const algo::Step& s, int i, PipeShared::Desk& desk) {
    const int e = find(shared_.pipes.recv, s.from.rank[i], s.port);
    const PipeEnd& end = shared_.pipes.recv[e];
    const uint64_t done = shared_.recvDone[e];
    awaitCount(Waiting::ForData, end.peer, end.filled, done + 1);
    desk.recv[i] = slot(end, done);
    desk.signal[i] = end.freed;
    desk.value[i] = done + 1;
    shared_.recvDone[e] = done + 1;
  }
  __device__ __forceinline__ void openSend(const algo::Step& s, int i, PipeShared::Desk& desk) {
    const int e = find(shared_.pipes.send, s.to.rank[i], s.port);
    const PipeEnd& end = shared_.pipes.send[e];
    const uint64_t done = shared_.sendDone[e];
    const auto slots = static_cast<uint64_t>(launch_.pipes.slots);
    if (done >= slots) awaitCount(Waiting::ForSlot, end.peer, end.freed, done + 1 - slots);
    desk.send[i] = slot(end, done);
    desk.signal[s.from.count + i] = end.filled;
    desk.value[s.from.count + i] = done + 1;
    shared_.sendDone[e] = done + 1;
  }

  __device__ __forceinline__ void awaitCount(Waiting waiting, Rank peer, const uint64_t* word, uint64_t expected) {
    if (shared_.failed != 0) return;
    const WaitNote note{waiting, launch_.call.view.rank.value, peer.value, channel_};
    const bool ok = waitUntil(launch_.call.wait, note, expected, [&](uint64_t& seen) {
      seen = arch::loadAcquireSys(word);
      return seen >= expected;
    });
    if (!ok) shared_.failed = 1;
  }

  /// A lane knows a handful of peers: a scan in shared memory beats a table as large as the communicator.
  static __device__ __forceinline__ int find(const PipeEnd (&ends)[kMaxPipeEnds], Rank peer, uint8_t port) {
    int e = 0;
    while (e < kMaxPipeEnds - 1 && (ends[e].peer != peer || ends[e].port != port)) ++e;
    return e;
  }
  __device__ __forceinline__ std::byte* slot(const PipeEnd& end, uint64_t number) const {
    return end.slots + number % static_cast<uint32_t>(launch_.pipes.slots) * launch_.pipes.slotBytes;
  }

  __device__ __forceinline__ void move(const algo::Step& s, const PipeShared::Desk& desk, algo::Range own, algo::Range out) const {
    Operands o;
    o.hasOwn = s.src.buffer != algo::Buffer::None;
    o.hasOut = s.dst.buffer != algo::Buffer::None;
    o.recvs = s.from.count;
    o.sends = s.to.count;
    o.own = address(s.src, own.begin);
    o.out = const_cast<std::byte*>(address(s.dst, out.begin));
#pragma unroll
    for (int i = 0; i < kMostFan; ++i) {
      if (i < s.from.count) o.recv[i] = desk.recv[i];
      if (i < s.to.count) o.send[i] = desk.send[i];
    }
    ReduceCopy<Reduction, Shape::kWorkers, Shape::kUnroll>::run(o, o.hasOwn ? own.elems : out.elems, threadIdx.x);
  }
  __device__ __forceinline__ algo::Range rangeOf(algo::ChunkRef chunk) const {
    return launch_.call.geometry.range(chunk.chunk, channel_, slice_);
  }
  __device__ __forceinline__ uint64_t pieceElems() const { return launch_.pipes.slotBytes / sizeof(typename Reduction::Storage); }
  /// Both ends of a pipe count alike, since both see the same number of elements. An empty slice takes one empty piece.
  __device__ __forceinline__ int32_t piecesOf(uint64_t elems) const {
    int32_t pieces = 1;
    for (uint64_t sent = pieceElems(); sent < elems; sent += pieceElems()) ++pieces;
    return pieces;
  }
  __device__ __forceinline__ algo::Range pieceOf(algo::Range slice, int32_t piece) const {
    const uint64_t skipped = pieceElems() * static_cast<uint32_t>(piece);
    const uint64_t left = slice.elems > skipped ? slice.elems - skipped : 0;
    return {slice.begin + skipped, min(left, pieceElems())};
  }
  __device__ __forceinline__ const std::byte* address(algo::ChunkRef chunk, uint64_t element) const {
    const std::byte* base = chunk.buffer == algo::Buffer::In ? launch_.call.in : launch_.call.out;
    return base + element * sizeof(typename Reduction::Storage);
  }

  __device__ __forceinline__ void signal(const algo::Step& s, const PipeShared::Desk& desk) const {
    const int i = static_cast<int>(threadIdx.x) - Shape::kWorkers;
    if (i >= s.from.count + s.to.count || shared_.failed != 0) return;
    arch::fenceAcqRelSys();
    arch::storeRelaxedSys(desk.signal[i], desk.value[i]);
  }

  const Launch& launch_;
  Shared& shared_;
  int32_t channel_;
  int32_t slice_ = 0;
  uint32_t turn_ = 0;  ///< pieces of this launch so far
};

}  // namespace tutti::exec::cuda
