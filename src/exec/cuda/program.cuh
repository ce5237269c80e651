// The program of one lane in the shared memory of a block: copied from device memory when the block begins a work.
//
// Written by all threads of the block, read by all after a barrier. All slices of the work run the same program.
#pragma once

#include "exec/cuda/pipe.h"
#include "exec/cuda/program.h"

namespace tutti::exec::cuda {

struct Program : ProgramHead {
  ProgramStep step[kMostSteps];
};
static_assert(sizeof(Program) == sizeof(ProgramHead) + kMostSteps * sizeof(ProgramStep));

/// All threads of the block; to be followed by a barrier. Returns the number of steps.
__device__ __forceinline__ int32_t loadProgram(Program& program, const ProgramView& view, int32_t channel, int32_t lane) {
  const uint64_t* const from = view.at(channel, lane);
  auto* const to = reinterpret_cast<uint64_t*>(&program);
  for (uint32_t i = threadIdx.x; i < view.shape.laneWords; i += blockDim.x) to[i] = from[i];
  return reinterpret_cast<const ProgramHead*>(from)->steps;
}

/// All threads of the block: a place in `ends` instead of every rank of a pipe step. -1 where there is no such end. `steps`: the program's,
/// which each thread has read for itself.
__device__ __forceinline__ void resolvePeers(Program& program, int32_t steps, const PipeEnd* ends) {
  for (int i = threadIdx.x; i < steps * 2 * kMostFan; i += blockDim.x) {
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
