// One call as a launch carries it, and the parameters of a launch. Plain values, trivially copyable, the same on host and device.
//
// From a plan to a Work: `program` is what packProgram() (launch.h) makes of the recorded steps; `geometry` is
// makeGeometry(traits.division, count, chunks, type, channels, sliceBytes) with sliceBytes at most what the protocol carries (limits
// below); block b of the launch runs, one after the other, every work with firstBlock <= b < firstBlock + channels × lanes, and is there
// lane firstLane + (b - firstBlock) % lanes of channel (b - firstBlock) / lanes, with the program of that channel's track.
// 1. All blocks of a launch must be on the device at once: they wait for each other across ranks.
// 2. `firstChannel` moves a work to other pipes: geometry channel c uses the pipes and windows of channel firstChannel + c. Its track is
//    that of c, so that no result depends on it: firstChannel is a multiple of the program's tracks, or the program has one.
// 3. Works on the same block follow one another in the order given, the same order on all ranks. They have the same number of lanes, and
//    if that is more than one, the same program. Works on different blocks use different pipe ends, windows' channels and hand-overs.
// 4. Slices of PeerMemory algorithms fit a window's share: sliceBytes <= carriedBytes(protocol, shareRoom(protocol, shareBytes)).
// 5. A message runs one lane a side: firstLane 0 to send, 1 to receive, lanes 1; it is recorded with the other side as the root,
//    which `root` names as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "algo/geometry.h"
#include "core/types.h"
#include "exec/cuda/pipe.h"
#include "exec/cuda/program.h"
#include "exec/cuda/verdict.h"
#include "exec/cuda/window.h"

namespace tutti::exec::cuda {

struct Work {
  algo::Geometry geometry;
  ProgramView program;  ///< of the rank, for the work's root
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  Scaling scaling;
  const void* factorSource = nullptr;  ///< device memory that holds the factor, one element; null: scaling.factor
  uint16_t firstBlock = 0;
  uint16_t firstChannel = 0;
  uint8_t firstLane = 0;
  uint8_t lanes = 1;      ///< that this work runs of each channel, from firstLane on
  uint8_t algorithm = 0;  ///< place in algo/list.h
  uint8_t root = 0;       ///< of collectives that have one, or the peer of a message; where there are at most kMaxLocalRanks
  DataType type = DataType::F32;
  ReduceOp op = ReduceOp::Sum;

  TUTTI_HD int32_t blocks() const { return geometry.channels * lanes; }
};

/// A communicator of one rank, as its kernels see it; the same from launch to launch but for `wait.signature`.
struct CommView {
  int32_t rank = 0;
  int32_t ranks = 1;
  PipeView pipes;     ///< of the kernel's protocol
  WindowView window;  ///< of the kernel's protocol: windowOf()
  WaitControl wait;
};

/// Only grids of at most so many blocks let the next one onto the device early, and only such are launched early: the two together take no
/// more room than one of a large call, so what other communicators need stays free.
inline constexpr int kMostEarlyBlocks = 16;

/// Works that travel with the launch; more lie in memory.
inline constexpr int kInlineWorks = 16;

struct Launch {
  CommView comm;
  int32_t works = 0;
  DataType type = DataType::F32;  ///< of all works that combine, or one with the same loops (loops.h)
  const Work* more = nullptr;  ///< device memory: works from kInlineWorks on; unchanged until the launch, and the graph it is in, has ended
  Work work[kInlineWorks];
};
static_assert(std::is_trivially_copyable_v<Launch> && std::is_trivially_copyable_v<Work>);
static_assert(sizeof(Launch) <= 4096, "kernel parameters");

}  // namespace tutti::exec::cuda
