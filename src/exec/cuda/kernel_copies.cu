// The kernels of one block around copies (copies.h).
#include "exec/cuda/kernels.h"
#include "exec/cuda/warp_side.cuh"

namespace tutti::exec::cuda {
namespace {

// So few registers that a warp of them fits beside a block of a product of matrices, which leaves 1024 of a multiprocessor's: else a call
// that moves nothing by blocks would wait until the product ends (docs/decisions/0074).
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1204
#define TUTTI_FEW_REGISTERS __maxnreg__(32)
#else
#define TUTTI_FEW_REGISTERS __launch_bounds__(kCopyThreads, 1)
#endif

__global__ void TUTTI_FEW_REGISTERS copiesKernel(const __grid_constant__ CopyLaunch launch, CopyStage stage) {
  WarpSide side(launch);
  (void)CopyStep<WarpSide>(launch, side).run(stage);
}

}  // namespace

const void* copiesFunction() { return reinterpret_cast<const void*>(&copiesKernel); }

}  // namespace tutti::exec::cuda
