// Proves that an algorithm does what its collective defines, by running the recorded steps of all ranks on symbols.
//
// Owner: whoever calls; a Prover keeps memory between cases, is used by one thread at a time, and ends before its Subjects.
// What one case establishes, for its ranks, root, slots and slices:
// 1. Every output chunk and slice holds each contribution exactly once and in the promised order, or the right input bit for bit;
//    nothing else is written, and a finished sum is never reduced or scaled again.
// 2. Every send has its receive, of the same size, slice and operation; no lane waits for ever. A pipe has one writer and one
//    reader, and so has every arrival and hand-over: a Kahn network, so what one schedule does, every schedule does.
// 3. No two accesses to one place race, chunks passed by reference, windows and in-place buffers included: vector clocks over
//    the same network, whose order of events does not depend on the schedule either.
// Channels share nothing but their rank, so one is run, and all are checked for their sizes. Where channels have tracks of their own
// (connect/layout.h), a case is one of them: a plan is proved when the cases of all its tracks are.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/prove/subject.h"

namespace tutti::exec::prove {

/// Layout seeds from here on: rings and trees as the channels of machines have them, a chain in every node, kTracks different ones.
inline constexpr uint64_t kChannelLayouts = 16;
inline constexpr int32_t kTracks = 3;

/// One thing to prove. SendRecv has no root: rank r exchanges with rank (root - r) mod ranks.
struct Case {
  const Subject* algorithm = nullptr;
  const Subject* then = nullptr;  ///< every second operation runs this one instead
  int32_t ranks = 1;
  int32_t root = 0;
  int32_t slots = 2;  ///< of every pipe
  int32_t slices = 1;
  int32_t channels = 1;
  int32_t operations = 1;  ///< one after the other on the same pipes and windows; the caller changes all buffers in between
  int32_t banks = 2;       ///< of a window
  bool inPlace = false;
  uint64_t layoutSeed = 0;  ///< 0: ranks in natural order round ring and trees; else a permutation, from kChannelLayouts on with chains
  int32_t localRanks = 0;   ///< ranks of a node; 0: all are on one
  int32_t track = 0;        ///< of the layout; what has fewer takes them in turn
  bool places = false;      ///< what may be written to outputs at once is written there (algo::Traits::places), and loaded once more
};

/// "AllReduce ring, 4 ranks, 2 slots, 3 slices, in place".
std::string describe(const Case& c);

enum class RaceCheck : uint8_t {
  NotReached,     ///< an earlier check failed
  NothingShared,  ///< no place is written by one lane and touched by another but through one message
  Ordered,        ///< shared places exist, and every two accesses to one are ordered
};

struct Proof {
  Case subject;
  bool ok = false;
  std::string failure;  ///< the first one, with algorithm, ranks, rank, lane, slice and step
  uint64_t lanes = 0;
  uint64_t steps = 0;
  uint64_t messages = 0;
  int32_t slotsUsed = 0;  ///< the fullest pipe
  RaceCheck races = RaceCheck::NotReached;
  uint64_t sharedPlaces = 0;
};

class Prover {
 public:
  Prover();
  ~Prover();
  Prover(const Prover&) = delete;
  Prover& operator=(const Prover&) = delete;

  Proof prove(const Case& c);

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

Proof prove(const Case& c);

/// The fewest slots with which the algorithm ends, up to `most`; 0 when none does.
int32_t leastSlots(const Subject& algorithm, int32_t ranks, int32_t most = 8);

}  // namespace tutti::exec::prove
