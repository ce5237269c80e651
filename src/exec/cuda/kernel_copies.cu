// The kernels of one block around copies (copies.h).
#include "exec/cuda/kernels.h"
#include "exec/cuda/warp_side.cuh"

namespace tutti::exec::cuda {
namespace {

__global__ void __launch_bounds__(kCopyThreads, 1) copiesKernel(const __grid_constant__ CopyLaunch launch, CopyStage stage) {
  WarpSide side(launch);
  (void)CopyStep<WarpSide>(launch, side).run(stage);
}

}  // namespace

const void* copiesFunction() { return reinterpret_cast<const void*>(&copiesKernel); }

}  // namespace tutti::exec::cuda
