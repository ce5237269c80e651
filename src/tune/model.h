// How long a call takes with an algorithm, from its recorded steps and a few constants of the machine.
//
// Owner: the planner, by value; one thread. Estimates depend on the call, the layout and the settings alone, so all ranks agree.
#pragma once

#include "algo/geometry.h"
#include "connect/layout.h"
#include "exec/record/profile.h"
#include "tune/profiles.h"

namespace tutti::tune {

/// Measured: `tutti bench all_reduce` with 8 bytes, 2 ranks and many; the same with 64 MiB.
struct Machine {
  double hopNs = 300;      ///< from a store until another core has seen it and gone on
  double switchNs = 2000;  ///< until a rank that shares its core with others gets its turn, for each of them
  double messageNs = 20;   ///< to send or to receive
  /// More for a small one of a pipe, whose slot is given back; with larger ones that goes on beside the copies. `tutti bench all_gather`
  /// and `reduce_scatter` with 2 processes, `ring` against `direct`.
  double pipeNs = 40;
  double bytesPerNs = 20;  ///< of memory traffic, by one core
  int32_t cores = 1;
  bool spansHosts = false;  ///< nodes are connected by a network
  // First guesses for TCP between machines, not measured: over loopback `tutti bench` with two NCCL_HOSTID shows a fifth of such a hop.
  double farHopNs = 25'000;    ///< from a send until a rank on another host has seen it
  double farBytesPerNs = 2.5;  ///< between two hosts
};

class Model {
 public:
  /// Up to here only what goes from core to core is counted as traffic. `tutti bench all_reduce` with 2 processes shows where one-shot
  /// and ring cross.
  static constexpr uint64_t kSmallBytes = 16384;

  /// `layout` outlives the model.
  Model(const connect::Layout& layout, const Machine& machine);

  /// Microseconds of a call whose larger buffer has `bytes`.
  double estimateUs(const exec::record::Algorithm& algorithm, const algo::Geometry& geometry, uint64_t bytes, bool lends);

 private:
  const connect::Layout& layout_;
  Machine machine_;
  Profiles profiles_;
};

}  // namespace tutti::tune
