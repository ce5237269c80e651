// Measures one call with two libraries, in turns.
//
// A process's one thread; all ranks do the same.
// 1. In each round every library makes a batch of calls; which one begins changes from round to round.
// 2. A batch begins at a barrier, with all ranks awake. Before each call every rank writes its input anew, outside the time, so that
//    no cache holds what another rank is to read; where that takes long, all meet once more before the call, so that who writes less (the
//    readers of a broadcast) does not count another's writing. A batch counts as the mean of its calls on the slowest rank.
// 3. Before and after the rounds every element of each library's result is compared with what it must be.
#pragma once

#include <array>

#include "bench/call.h"
#include "bench/check.h"
#include "bench/measure.h"
#include "peers/tutti.h"

namespace tutti::bench {

class Comparison {
 public:
  /// Buffers for calls of up to `bytes`.
  Comparison(Tutti& tutti, Library& peer, BufferKind buffers, uint64_t bytes);

  /// Of tutti and of the peer.
  std::array<Measurement, 2> measure(const Call& call, int rounds);

 private:
  Round nextRound();
  void make(Library& library, const Call& call) const;
  /// Seconds that this rank spent in the calls.
  double runBatch(Library& library, const Call& call, uint64_t calls);
  /// How many calls take about a batch's time; the same on all ranks.
  uint64_t countCalls(Library& library, const Call& call);
  void checkOnce(Library& library, const Call& call, Measurement& measurement);

  Tutti& tutti_;
  const std::array<Library*, 2> libraries_;
  Memory memory_;
  Placement placement_;
  std::vector<Pattern> patterns_;
  uint64_t rounds_ = 0;
};

}  // namespace tutti::bench
