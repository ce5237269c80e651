// Launches an all-reduce on all ranks of a fabric, eagerly or as a replayed graph, and times it.
#pragma once

#include <vector>

#include "fabric.h"
#include "variants.h"

namespace tutti::probe {

struct Job {
  Algo algo = Algo::OneShot;
  DataType type = DataType::F32;
  uint64_t count = 0;
  KernelShape shape;
  int32_t channels = 1;
  uint64_t sliceBytes = 32 << 10;
  bool inPlace = false;
  uint64_t offsetElems = 0;  ///< both buffers begin this many elements past their alignment
  bool overlap = false;      ///< programmatic dependent launch: a kernel may be put on the device before its predecessor has ended

  uint64_t bytes() const { return count * sizeOf(type); }
  algo::Geometry geometry(int32_t ranks) const;
};

/// How an operation is repeated: `ops` launches in a row, as one graph where `graph`, replayed `replays` times; `rounds` of that.
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
  double launchMs = 0;  ///< the longest that a rank's thread took to launch all of a round
};

class Runner {
 public:
  explicit Runner(Fabric& fabric) : fabric_(fabric) {}

  /// One operation on every rank but `absent`; through a graph of one node where `graph`. False: a wait gave up.
  bool runOnce(const Job& job, bool graph, int32_t absent = -1);
  Timing time(const Job& job, const Repeat& repeat);

 private:
  void enqueue(const Job& job, int32_t rank) const;
  cudaGraphExec_t capture(const Job& job, int32_t rank, int ops) const;

  Fabric& fabric_;
};

}  // namespace tutti::probe
