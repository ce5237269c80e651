// What a call would get, why, and what else there was: one structure for communicators of host devices and of GPUs, and for machines that
// are only known from a file.
//
// Plain values; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/planner.h"

namespace tutti::plan {

struct Explanation {
  std::string_view collective;
  uint64_t bytes = 0;  ///< of the larger buffer
  int32_t ranks = 0;
  int32_t nodes = 0;
  Summary chosen;
  std::string constants;  ///< of the machine: a platform's name
  std::string_view simd;  ///< host devices
  std::vector<Rejected> rejected;
};

/// One JSON object, as tutti.h describes it at tuttiExplain.
std::string toJson(const Explanation& explanation);

}  // namespace tutti::plan
