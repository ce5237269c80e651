// A product of matrices and a collective at the same time: how much each loses.
//
// Owner: a rank's process, one thread.
// 1. Products are timed beside a number of calls that is the same for both libraries and lasts about half as long, so a library does not
//    look worse for being faster. Then calls are timed while products run from before their begin on and, up to 400 of them, to behind
//    their end. Alone, both are timed in the same way. Times are the slowest rank's.
// 2. Calls are captured into a graph where there are graphs, so that the CPU holds neither back.
// 3. Libraries take turns, as in compare.h.
#pragma once

#include "gpu/options.h"

namespace tutti::bench::gpu {

/// The program's exit code.
int runOverlap(World& world, const BenchOptions& options);

}  // namespace tutti::bench::gpu
