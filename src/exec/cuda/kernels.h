// The list of kernels: each kernel file gives one entry. Immutable; any thread. Knows no CUDA header and, because nvcc reads it, nothing of
// core/status.h.
#pragma once

#include <cstdint>

#include "exec/cuda/pipe.h"

namespace tutti::exec::cuda {

struct KernelInfo {
  const char* name;
  Protocol protocol;
  bool runsPipes;       ///< algorithms that need pipes and hand-overs
  bool runsWindows;     ///< algorithms that need windows
  int32_t threads;      ///< of a block
  int32_t sharedBytes;  ///< dynamic shared memory of a block
  int32_t minimumArch;  ///< 80: sm_80
};

struct KernelEntry {
  KernelInfo info;
  const void* function;
};

const KernelEntry& windowEntry();
const KernelEntry& cellsEntry();
const KernelEntry& linesEntry();
const KernelEntry& simpleEntry();
const KernelEntry& bulkEntry();

}  // namespace tutti::exec::cuda
