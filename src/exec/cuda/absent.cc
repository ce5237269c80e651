// In builds without nvcc.
#include "exec/cuda/launch.h"

namespace tutti::exec::cuda {

std::unique_ptr<Executor> makeExecutor() { return nullptr; }

}  // namespace tutti::exec::cuda
