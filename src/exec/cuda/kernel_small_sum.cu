// Kernels of small calls, one a type: those whose operation has the loop "sum".
#include "exec/cuda/kernels.h"
#include "exec/cuda/small_lane.cuh"

namespace tutti::exec::cuda {

const void* smallSum(int type) { return smallFunctionOf<ReduceOp::Sum>(type); }

}  // namespace tutti::exec::cuda
