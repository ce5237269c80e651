// How long a call takes with an algorithm, from its recorded steps and a few constants of the machine.
//
// Owner: the planner, by value; one thread. Estimates depend on the call, the layout and the settings alone, so all ranks agree.
#pragma once

#include "algo/geometry.h"
#include "connect/layout.h"
#include "exec/record/profile.h"
#include "tune/cost.h"
#include "tune/platform.h"
#include "tune/profiles.h"

namespace tutti::tune {

class Model {
 public:
  /// Up to here only what goes from core to core is counted as traffic. `tutti bench all_reduce` with 2 processes shows where one-shot
  /// and ring cross.
  static constexpr uint64_t kSmallBytes = 16384;

  /// `layout` outlives the model.
  Model(const connect::Layout& layout, const Machine& machine);

  /// Of a call whose larger buffer has `bytes`. `copiesIntoCells`: whether a window's values are copied into its cells and out of them.
  Cost estimate(const exec::record::Algorithm& algorithm, const algo::Geometry& geometry, uint64_t bytes, exec::record::Loans loans,
                bool copiesIntoCells = false);
  double estimateUs(const exec::record::Algorithm& algorithm, const algo::Geometry& geometry, uint64_t bytes, exec::record::Loans loans) {
    return estimate(algorithm, geometry, bytes, loans).sum();
  }
  /// From now on; what has been recorded of algorithms stays.
  void use(const Machine& machine) { machine_ = machine; }

 private:
  const connect::Layout& layout_;
  Machine machine_;
  Profiles profiles_;
};

}  // namespace tutti::tune
