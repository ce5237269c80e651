// The kernel that finds the near pages of a window (near_pages.h): a block for each channel.
#include <climits>

#include "exec/cuda/arch/memory.cuh"
#include "exec/cuda/arch/sync.cuh"
#include "exec/cuda/kernels.h"
#include "exec/cuda/near_pages.h"

namespace tutti::exec::cuda {
namespace {

constexpr int kTries = 5;
static_assert(kNearPagesThreads == 32 * kMaxLocalRanks);

/// The fewest cycles of several tries: other work on the GPU only adds.
__device__ uint32_t leastCycles(std::byte* page) {
  uint32_t least = UINT_MAX;
  for (int i = 0; i < kTries; ++i) {
    const uint32_t began = arch::cycles();
    const uint32_t seen = arch::addRelaxedGpu(reinterpret_cast<uint32_t*>(page), 0);
    if (seen == UINT_MAX) __nanosleep(1);  // never, but the clock is read once the value is there
    least = min(least, arch::cycles() - began);
  }
  return least;
}

/// A warp for each writer.
__global__ void __launch_bounds__(kNearPagesThreads, 1) nearPagesKernel(const __grid_constant__ NearLaunch launch) {
  const auto writer = static_cast<int32_t>(threadIdx.x / 32);
  if (writer >= launch.ranks || writer == launch.rank || threadIdx.x % 32 != 0) return;
  WindowView window;
  window.base[0] = launch.window;
  window.shareBytes = launch.shareBytes;
  window.channels = launch.channels;
  for (uint64_t bank = 0; bank < 2; ++bank) {
    std::byte* const share = window.share(0, bank, writer, launch.ranks, static_cast<int32_t>(blockIdx.x));
    const uint64_t first = leastCycles(share);
    const uint64_t second = leastCycles(share + kPageBytes);
    // Near is 0.6 of far; less of a difference is none.
    if (5 * second < 4 * first) atomicOr(&launch.pages[writer].laterIn[bank], uint32_t{1} << blockIdx.x);
  }
}

}  // namespace

const void* nearPagesFunction() { return reinterpret_cast<const void*>(&nearPagesKernel); }

}  // namespace tutti::exec::cuda
