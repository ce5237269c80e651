// The two ends of a pipe as kernels see them. Plain views, the same on host and device; the host owns the memory behind them.
//
// A pipe is `slots` cells of `slotBytes` in the RECEIVER's memory: the sender pushes data over NVLink, the receiver reads locally.
//   filled   in the receiver's memory; the sender stores it (relaxed, after a release fence), the receiver polls it (acquire)
//   freed    in the sender's memory; the receiver stores it (relaxed, after a release fence), the sender polls it (acquire)
//   done     in the end's own memory; its lane reads it when a launch begins and writes it when the launch ends
// 1. All three count pieces of slices from the birth of the pipe and never wrap, so launches follow one another, also as a replayed graph,
//    without a reset; piece n lies in slot n % slots.
// 2. A channel's pipes are used by one launch at a time on each rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "algo/step.h"
#include "core/ids.h"

namespace tutti::exec::cuda {

struct PipeEnd {
  Rank peer;
  uint8_t port = 0;
  std::byte* slots = nullptr;  ///< in the receiver's memory
  uint64_t* filled = nullptr;
  uint64_t* freed = nullptr;
  uint64_t* done = nullptr;
};
static_assert(std::is_trivially_copyable_v<PipeEnd>);

/// The most peers that one step may name; one that names more stops the kernel. So PAT does not run here yet.
inline constexpr int kMostFan = algo::kMaxListed;

/// The most pipes in one direction that one lane may use: its ring, its trees' fan, or its one message.
inline constexpr int kMaxPipeEnds = 4;

/// All pipes of one lane of one channel of one rank.
struct LanePipes {
  PipeEnd recv[kMaxPipeEnds];
  PipeEnd send[kMaxPipeEnds];
  int32_t recvs = 0;
  int32_t sends = 0;
};
static_assert(std::is_trivially_copyable_v<LanePipes>);

/// What the pipe lanes of a launch share.
struct PipeView {
  const LanePipes* lanes = nullptr;  ///< [channel][lane], in the rank's own memory
  uint64_t slotBytes = 0;            ///< what one piece of a slice carries; a multiple of 16
  int32_t slots = 2;                 ///< of a pipe: as many slices as the algorithm needs, cut into pieces of slotBytes
};
static_assert(std::is_trivially_copyable_v<PipeView>);

}  // namespace tutti::exec::cuda
