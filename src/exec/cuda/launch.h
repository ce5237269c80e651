// The launch interface: which kernels there are, loading them, launching one. Plain C++, for files that know nothing of CUDA's headers.
//
// Any thread; loadKernels() and launch() act on the device that is current on the calling thread.
// 1. loadKernels() is called for a device when a communicator connects. After it no launch loads code or changes an attribute, so a launch
//    never waits for a peer's kernel that waits for this one.
// 2. Kernels of one launch share a protocol. A group whose calls have several is launched once for each, in the order of KernelId on all
//    ranks, on one stream.
// 3. work.h says how a plan becomes works; fits() says whether a plan's program can run here.
#pragma once

#include <cstdint>
#include <span>

#include "algo/traits.h"
#include "core/status.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/work.h"

namespace tutti::exec::cuda {

enum class KernelId : uint8_t {
  Window,  ///< flag-in-data windows: the smallest latency
  Cells,   ///< pipes of cells ("LL")
  Lines,   ///< pipes of lines ("LL128"): only where the machine keeps them in order
  Simple,  ///< pipes and windows of plain data
  Bulk,    ///< the same, moved by the bulk copy engine where nothing is computed; from sm_90 on
};
inline constexpr int kNumKernels = 5;

const KernelInfo& kernelInfo(KernelId kernel);

/// What a kernel takes of a multiprocessor on the current device, for tests and the register table.
struct KernelUse {
  int32_t registers = 0;
  int32_t localBytes = 0;  ///< of a thread: stack and spills
  int32_t sharedBytes = 0;
  int32_t blocksPerMultiprocessor = 0;
};

/// Loads every kernel on the current device; `uses`, if given, has room for kNumKernels. Kernels that the device is too old for are left
/// out.
Status loadKernels(KernelUse* uses = nullptr);

/// How many steps a lane's program may have on a kernel, arrivals not counted where flags travel with the data.
int32_t mostSteps(KernelId kernel);
/// Whether a lane whose program has so many steps, and so many peers in one of them, can run.
bool fits(KernelId kernel, algo::Needs needs, int32_t steps, int32_t fan);

struct LaunchOptions {
  int32_t blocks = 1;       ///< the highest of firstBlock + blocks() of all works; all must fit onto the device at once
  bool mayOverlap = false;  ///< programmatic dependent launch: may be put on the device before the kernel before it has ended
};

/// `stream` is a cudaStream_t. Asynchronous; nothing of `launch` is read after the return but what it points to.
Status launchKernel(KernelId kernel, const Launch& launch, const LaunchOptions& options, void* stream);

}  // namespace tutti::exec::cuda
