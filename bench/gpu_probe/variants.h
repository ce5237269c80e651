// Every kernel that the probe can run, found by algorithm, type and shape.
#pragma once

#include "core/types.h"

namespace tutti::probe {

enum class Algo { OneShot, Ring };

/// Threads that move data, and (ring) how many 16-byte loads of an operand each has in flight.
struct KernelShape {
  int workers = 512;
  int unroll = 8;
};

struct Kernel {
  const void* function = nullptr;  ///< null: not built
  int threads = 0;
};

Kernel findKernel(Algo algo, DataType type, KernelShape shape);

/// Loads every kernel on the current device: the first launch of one must not wait for a peer's running kernel.
void loadKernels();

}  // namespace tutti::probe
