// Kernels of small calls, one a type: those whose operation has the loop "prod".
#include "exec/cuda/kernels.h"
#include "exec/cuda/small_lane.cuh"

namespace tutti::exec::cuda {

const void* smallProd(int type) { return smallFunctionOf<ReduceOp::Prod>(type); }

}  // namespace tutti::exec::cuda
