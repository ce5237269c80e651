// The profiles of algorithms for a communicator's size, each recorded once.
//
// Owner: a cost model; one thread.
// 1. Algorithms are recorded for about kMostRanks ranks at most, whole nodes of them and two at least; beyond, hops and traffic go on
//    growing as they did up to there. Those that run on few nodes only are recorded as they run.
// 2. They do not depend on who asks: natural order, nodes of the real size where they fit, a root in the middle.
#pragma once

#include <map>
#include <utility>

#include "connect/layout.h"
#include "exec/record/profile.h"

namespace tutti::tune {

class Profiles {
 public:
  static constexpr int32_t kMostRanks = 64;

  /// `localRanks`: of every node of the layout that is recorded. `passesByReference`: exec/record/cost.h.
  Profiles(int32_t ranks, int32_t localRanks, bool passesByReference)
      : ranks_(ranks), localRanks_(localRanks), passesByReference_(passesByReference) {}

  const exec::record::Profile& get(const exec::record::Algorithm& algorithm, exec::record::Loans loans);

 private:
  exec::record::Profile record(const exec::record::Algorithm& algorithm, int32_t ranks, exec::record::Loans loans) const;

  int32_t ranks_;
  int32_t localRanks_;
  bool passesByReference_;
  std::map<std::pair<const exec::record::Algorithm*, exec::record::Loans>, exec::record::Profile> profiles_;
};

}  // namespace tutti::tune
