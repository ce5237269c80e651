// `tutti bench`: the whole run, from checked options to an exit code.
#pragma once

#include <chrono>
#include <functional>

#include "bench/options.h"
#include "core/status.h"
#include "nccl.h"

namespace tutti::bench {

/// Where the unique id of the communicator comes from; waits no longer than it is told, or, for zero, without end.
using GetId = std::function<Result<ncclUniqueId>(std::chrono::milliseconds)>;

/// Prints as it goes. 0: all right; 1: a wrong element on any rank, or a file that could not be written; 3: the library failed or hung.
int runBench(const Options& options, const GetId& getId);

}  // namespace tutti::bench
