// What the processor takes for the calls of CUDA that a lone call of a communicator makes: no eager call takes less than its launch.
#pragma once

#include <cuda_runtime.h>

namespace tutti::limits {

/// Prints a table: medians over batches, microseconds. `stream` is one of the device that is current, and idle.
void printHostCalls(cudaStream_t stream);

}  // namespace tutti::limits
