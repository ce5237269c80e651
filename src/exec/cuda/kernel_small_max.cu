// Kernels of small calls, one a type: those whose operation has the loop "max".
#include "exec/cuda/kernels.h"
#include "exec/cuda/small_lane.cuh"

namespace tutti::exec::cuda {

const void* smallMax(int type) { return smallFunctionOf<ReduceOp::Max>(type); }

}  // namespace tutti::exec::cuda
