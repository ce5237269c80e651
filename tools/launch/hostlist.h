// The two compressed lists in which Slurm describes the nodes of a step.
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/status.h"

namespace tutti::launch {

/// The first host of a list such as "node[01-03,7],gpu-b2" (node01) or "rack[2-4]n[05,7]x" (rack2n05x).
Result<std::string> firstHost(std::string_view list);

/// The entry of node `node` in a list of counts such as "4(x2),3": 4, 4, 3.
Result<int> tasksOfNode(std::string_view list, int64_t node);

}  // namespace tutti::launch
