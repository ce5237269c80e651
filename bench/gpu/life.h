// What a library costs before its first call: time until a communicator is ready, and the memory of a GPU that it takes.
//
// Owner: a rank's process, one thread, begun for this alone: what is loaded once in a process is loaded here.
// 1. The device's context is there before the clock starts, and dlopen is not counted.
// 2. Memory is what cudaMemGetInfo says is gone since then, the most of all ranks; nobody else uses the GPUs.
#pragma once

#include "gpu/options.h"

namespace tutti::bench::gpu {

/// The program's exit code.
int runLife(World& world, const BenchOptions& options);

}  // namespace tutti::bench::gpu
