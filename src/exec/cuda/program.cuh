// The program of one lane, written down by the algorithm's own template when a block begins a work, and kept in shared memory.
//
// Written by one thread, read by the whole block after a barrier. All slices of the work run the same program, so the template runs once a
// work, and each algorithm is in a kernel once, whatever the type and the operation.
// 1. A step's peers are ranks until resolvePeers() has made places in the channel's directory of ends of them.
#pragma once

#include "algo/list.h"
#include "exec/cuda/work.h"

namespace tutti::exec::cuda {

struct ProgramStep {
  algo::Kind kind;
  algo::Buffer srcBuffer;
  algo::Buffer dstBuffer;
  bool reduce;
  uint8_t port;
  uint8_t round;
  int8_t lane;
  uint8_t froms;
  int32_t srcChunk;
  int32_t dstChunk;
  int32_t tos;
  int32_t from[kMostFan];  ///< pipes: place of the end in the directory; windows: rank
  int32_t to[kMostFan];
};

struct Program {
  ProgramStep step[kMostSteps];
  int32_t steps;    ///< may exceed kMostSteps: then the program is not whole
  int32_t mostFan;  ///< may exceed kMostFan
  int32_t rounds;   ///< of a slice, for windows
};

/// Peer i of one side of a step; `first`, `second`, `third` as in algo::Peers, but that `second` is the modulus of ranks at doubling
/// distances.
__device__ __forceinline__ int32_t peerAt(bool doubles, int32_t first, int32_t second, int32_t third, int i) {
  if (doubles) return (first + (1 << i)) % second;
  return i == 0 ? first : i == 1 ? second : third;
}

/// One step more. A call with everything in registers: an algorithm has many verbs, and their code would be in the kernel once for each.
inline __device__ __noinline__ void writeStep(Program& program, uint32_t kinds, uint32_t counts, int32_t srcChunk, int32_t dstChunk,
                                              int32_t from0, int32_t from1, int32_t from2, int32_t to0, int32_t to1, int32_t to2) {
  const int32_t at = program.steps++;
  const auto froms = static_cast<int32_t>(counts & 0x7f);
  const auto tos = static_cast<int32_t>(counts >> 8 & 0x7f);
  program.mostFan = max(program.mostFan, max(froms, tos));
  program.rounds = static_cast<int32_t>(counts >> 24) + 1;
  if (at >= kMostSteps) return;
  ProgramStep& s = program.step[at];
  s.kind = static_cast<algo::Kind>(kinds & 0xff);
  s.reduce = (kinds >> 8 & 1) != 0;
  s.srcBuffer = static_cast<algo::Buffer>(kinds >> 9 & 3);
  s.dstBuffer = static_cast<algo::Buffer>(kinds >> 11 & 3);
  s.port = static_cast<uint8_t>(kinds >> 16);
  s.lane = static_cast<int8_t>(kinds >> 24);
  s.round = static_cast<uint8_t>(counts >> 24);
  s.srcChunk = srcChunk;
  s.dstChunk = dstChunk;
  s.froms = static_cast<uint8_t>(froms);
  s.tos = tos;
#pragma unroll
  for (int i = 0; i < kMostFan; ++i) {
    s.from[i] = peerAt((counts & 0x80) != 0, from0, from1, from2, i);
    s.to[i] = peerAt((counts & 0x8000) != 0, to0, to1, to2, i);
  }
}

/// The lane that writes steps down.
class ProgramRecorder : public algo::LocalVerbs<ProgramRecorder>,
                        public algo::PipeVerbs<ProgramRecorder>,
                        public algo::HandOverVerbs<ProgramRecorder>,
                        public algo::PeerMemoryVerbs<ProgramRecorder> {
 public:
  /// `skipsSignals`: flags travel inside the data, so most arrivals are no steps.
  __device__ __forceinline__ ProgramRecorder(Program& program, Rank self, bool skipsSignals)
      : program_(program), self_(self), skipsSignals_(skipsSignals) {
    program.steps = program.mostFan = 0;
    program.rounds = 1;
  }

  __device__ __forceinline__ void run(const algo::Step& s) {
    if (skipsSignals_ && !isSignalNeeded(s)) return;
    // What a rank stores for itself stays where it is: it becomes a source of the step that combines.
    if (s.kind == algo::Kind::Store && s.to.rank[0] == self_) {
      own_ = s.src;
      return;
    }
    const algo::ChunkRef src = s.kind == algo::Kind::LoadReduce ? own_ : s.src;
    const uint32_t kinds = static_cast<uint32_t>(s.kind) | static_cast<uint32_t>(s.reduce) << 8 | static_cast<uint32_t>(src.buffer) << 9 |
                           static_cast<uint32_t>(s.dst.buffer) << 11 | static_cast<uint32_t>(s.port) << 16 |
                           static_cast<uint32_t>(static_cast<uint8_t>(s.lane)) << 24;
    const uint32_t counts = countOf(s.from) | countOf(s.to) << 8 | static_cast<uint32_t>(s.round) << 24;
    writeStep(program_, kinds, counts, src.chunk, s.dst.chunk, s.from.rank[0].value, second(s.from), s.from.rank[2].value,
              s.to.rank[0].value, second(s.to), s.to.rank[2].value);
  }

 private:
  /// With flags inside the data a store is an arrival, and a load is a wait. What is left are arrivals and waits between ranks that
  /// exchange nothing in a round: they keep the banks of windows in step, and carry an empty cell.
  __device__ __forceinline__ bool isSignalNeeded(const algo::Step& s) {
    const auto isLastAwait = [&] { return program_.steps > 0 && program_.step[program_.steps - 1].kind == algo::Kind::Await; };
    if (s.kind == algo::Kind::Store) {
      stored_ = (round_ == s.round ? stored_ : 0) | 1u << s.to.rank[0].value;
      round_ = s.round;
    }
    if (s.kind == algo::Kind::Arrive) return round_ != s.round || (stored_ >> s.to.rank[0].value & 1) == 0;
    if (s.kind == algo::Kind::Load && isLastAwait() && program_.step[program_.steps - 1].from[0] == s.from.rank[0].value) --program_.steps;
    if (s.kind == algo::Kind::LoadReduce) {
      while (isLastAwait()) --program_.steps;
    }
    return true;
  }
  static __device__ __forceinline__ uint32_t countOf(const algo::Peers& peers) {
    return static_cast<uint32_t>(peers.count) | (peers.modulus != 0 ? 0x80u : 0u);
  }
  static __device__ __forceinline__ int32_t second(const algo::Peers& peers) {
    return peers.modulus != 0 ? peers.modulus : peers.rank[1].value;
  }

  Program& program_;
  Rank self_;
  bool skipsSignals_;
  algo::ChunkRef own_;
  uint32_t stored_ = 0;  ///< bits: peers that this rank has stored for in round_
  uint8_t round_ = 0;
};

/// Which algorithms a kernel holds.
struct AllKinds {
  static constexpr bool holds(algo::Needs) { return true; }
};
struct PipesOnly {
  static constexpr bool holds(algo::Needs needs) { return needs == algo::Needs::Pipe; }
};
struct WindowsOnly {
  static constexpr bool holds(algo::Needs needs) { return needs == algo::Needs::PeerMemory; }
};

template <class Holds, class Algorithm>
__device__ __forceinline__ void recordIf(bool isWanted, ProgramRecorder& recorder, const algo::LayoutView& view, int32_t lane) {
  if constexpr (Holds::holds(Algorithm::kTraits.needs)) {
    if (isWanted) Algorithm::run(recorder, view, lane);
  }
}
template <class Holds, class... Algorithms>
__device__ __forceinline__ void recordAmong(algo::TypeList<Algorithms...>, ProgramRecorder& recorder, const algo::LayoutView& view,
                                            int32_t algorithm, int32_t lane) {
  int32_t number = 0;
  (recordIf<Holds, Algorithms>(number++ == algorithm, recorder, view, lane), ...);
}

/// One thread. The layout's root must be the work's.
template <class Holds>
__device__ __forceinline__ void recordProgram(Program& program, const algo::LayoutView& view, int32_t algorithm, int32_t lane,
                                              bool skipsSignals) {
  ProgramRecorder recorder(program, view.rank, skipsSignals);
  recordAmong<Holds>(algo::AllAlgorithms{}, recorder, view, algorithm, lane);
}

inline __device__ bool isWhole(const Program& program) { return program.steps <= kMostSteps && program.mostFan <= kMostFan; }

/// All threads of the block: a place in `ends` instead of every rank of a pipe step. -1 where there is no such end.
__device__ __forceinline__ void resolvePeers(Program& program, const PipeEnd* ends) {
  for (int i = threadIdx.x; i < program.steps * 2 * kMostFan; i += blockDim.x) {
    ProgramStep& s = program.step[i / (2 * kMostFan)];
    const int which = i % (2 * kMostFan);
    const bool sends = which >= kMostFan;
    const int place = which % kMostFan;
    if (s.kind != algo::Kind::Pipe || place >= (sends ? s.tos : static_cast<int>(s.froms))) continue;
    int32_t& peer = sends ? s.to[place] : s.from[place];
    int32_t found = -1;
    for (int e = 0; e < kMostEnds && ends[e].peer >= 0; ++e)
      if (ends[e].peer == peer && ends[e].port == s.port && ends[e].sends == sends) found = e;
    peer = found;
  }
}

}  // namespace tutti::exec::cuda
