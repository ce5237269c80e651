// Runs one collective on all ranks of a fabric, once and checked bit for bit, or many times and timed.
//
// Used by one thread; timing starts a thread a rank.
#pragma once

#include "fabric.h"
#include "reference.h"

namespace tutti::probe {

struct Job {
  Question question;
  KernelId kernel = KernelId::Simple;
  int32_t channels = 1;
  uint64_t sliceBytes = 0;
  bool inPlace = false;
  uint64_t offsetElems = 0;     ///< both buffers begin this many elements past their alignment
  bool factorInMemory = false;  ///< the pre-multiplier is read by the kernel
  bool mayOverlap = false;
  bool mayBeLone = true;
  int32_t clusterBlocks = 4;  ///< where the kernel runs pipes
  int copies = 1;  ///< works in one launch: the same call, one after the other on the same blocks, each on its part of the buffers
};

struct Outcome {
  bool ran = false;          ///< false: a wait gave up; nothing more can be run
  uint64_t wrongRanks = 0;   ///< with at least one wrong byte
  uint64_t firstWrong = 0;   ///< byte
  uint64_t overwritten = 0;  ///< bytes outside the output that changed
};

/// How a call is repeated: `ops` launches in a row, as one graph where `graph`, replayed `replays` times; `rounds` of that.
struct Repeat {
  bool graph = true;
  int ops = 100;
  int replays = 20;
  int rounds = 5;
};
struct Timing {
  bool ok = false;
  double usPerOp = 0;  ///< median of the rounds; of the slowest rank in each
  double best = 0;
  double worst = 0;
};

class Runner {
 public:
  explicit Runner(Fabric& fabric) : fabric_(fabric) {}

  /// On fresh inputs made of `seed`. `absent`: a rank that does not take part (then nothing is compared).
  Outcome run(const Job& job, uint64_t seed, int32_t absent = -1);
  Timing time(const Job& job, const Repeat& repeat);
  /// The slice that the kernel's slots or shares hold: `pieces` slots of a pipe.
  uint64_t sliceBytes(const Job& job, uint64_t pieces) const;

 private:
  struct Placed;
  Placed place(const Job& job, int32_t rank) const;
  void connect(const Job& job);
  void enqueue(const Job& job, int32_t rank);
  void prepare(const Job& job, const std::vector<std::vector<Bytes>>& inputs);

  Fabric& fabric_;
  uint64_t launches_ = 0;
  std::vector<uint64_t> launchOf_;  // by rank
};

}  // namespace tutti::probe
