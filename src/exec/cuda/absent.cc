// In builds without nvcc.
#include "exec/cuda/launch.h"

namespace tutti::exec::cuda {

std::unique_ptr<Executor> makeExecutor() { return nullptr; }
int32_t builtRuntime() { return 0; }

}  // namespace tutti::exec::cuda
