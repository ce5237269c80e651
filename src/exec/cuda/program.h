// The program of a rank as kernels carry it out: the steps of all its lanes, recorded once on the host when a call is planned, and read by
// every launch of the plan from device memory.
//
// Whoever plans owns the words and their copy on the device; the copy is complete before a launch that names it is enqueued, and unchanged
// until the last such launch, and every graph it is in, has ended. Any thread may read either.
// 1. Lane l of track t has the words from (t × lanes + l) × laneWords on: a ProgramHead, its steps, and zeros to the length of the longest
//    lane of all tracks. Channel c runs what track c mod tracks has.
// 2. A step's peers are ranks; a block makes places in its directory of ends of them, in its own copy.
// 3. What a rank stores for itself is no step: it is a source of the step that combines.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "algo/step.h"
#include "core/macros.h"

namespace tutti::exec::cuda {

/// What fits: steps of a lane's program, and peers on one side of a step.
inline constexpr int kMostSteps = 128;
inline constexpr int kMostFan = 4;
/// Of the Window kernel, which has no steps for arrivals: 8 ranks' two-shot has 22.
inline constexpr int kMostWindowSteps = 32;

struct alignas(8) ProgramHead {
  int32_t steps;
  int32_t rounds;  ///< of a slice, for windows
};

struct alignas(8) ProgramStep {
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
  int32_t from[kMostFan];  ///< pipes: place of the end in the directory; windows: rank
  int32_t to[kMostFan];
  int32_t tos;
  int32_t unused;
};
static_assert(std::is_trivially_copyable_v<ProgramStep> && sizeof(ProgramStep) == 56);

/// How a program's words are laid out.
struct ProgramShape {
  uint32_t laneWords = 0;
  uint16_t tracks = 1;
  uint16_t lanes = 1;  ///< of a track
  friend bool operator==(const ProgramShape&, const ProgramShape&) = default;
};

/// A rank's program in device memory.
struct ProgramView {
  const uint64_t* words = nullptr;
  ProgramShape shape;

  /// What `lane` runs on a channel of the geometry.
  TUTTI_HD const uint64_t* at(int32_t channel, int32_t lane) const {
    const int32_t track = shape.tracks == 1 ? 0 : channel % shape.tracks;
    return words + static_cast<uint64_t>(track * shape.lanes + lane) * shape.laneWords;
  }
};

struct PackedProgram {
  std::vector<uint64_t> words;  ///< [track][lane][laneWords]
  ProgramShape shape;
};

/// The steps of one lane as kernels want them. `skipsSignals`: flags travel inside the data, so a store is an arrival and a load a wait;
/// only arrivals and waits between ranks that exchange nothing in a round are steps, with an empty cell. May be longer than any kernel
/// holds, and a step may have more peers than fit: these have no place in it (launch.h, packProgram(), refuses both).
std::vector<ProgramStep> packLane(std::span<const algo::Step> steps, Rank self, bool skipsSignals);

/// Lanes one after the other, as in rule 1: those of the first track, of the second one … each track has as many.
PackedProgram joinLanes(std::span<const std::vector<ProgramStep>> lanes, int32_t tracks = 1);

}  // namespace tutti::exec::cuda
