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

/// How what a rank has long is passed to another.
enum class Passing : uint8_t {
  InPlace,        ///< it is read where it lies
  BySystemCall,   ///< the kernel copies it, from process to process
  ThroughCopies,  ///< into cells or slots, and out of them
};

class Model {
 public:
  /// Up to here only what goes from core to core is counted as traffic. `tutti bench all_reduce` with 2 processes shows where one-shot
  /// and ring cross.
  static constexpr uint64_t kSmallBytes = 16384;

  /// `layout` outlives the model.
  Model(const connect::Layout& layout, const Machine& machine);

  /// Of a call whose larger buffer has `bytes`.
  Cost estimate(const exec::record::Algorithm& algorithm, const algo::Geometry& geometry, uint64_t bytes, exec::record::Loans loans,
                Passing passing = Passing::InPlace);
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
