// Runs an operation on fresh inputs and compares every bit with the host's computation of the order that the algorithm states.
#pragma once

#include "runner.h"

namespace tutti::probe {

struct VerifyResult {
  bool ran = false;          ///< false: a wait gave up; nothing more can be run
  uint64_t wrong = 0;        ///< elements, over all ranks
  uint64_t overwritten = 0;  ///< bytes outside the output that changed
};

VerifyResult verify(Fabric& fabric, const Job& job, uint64_t seed, bool graph);

}  // namespace tutti::probe
