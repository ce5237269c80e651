// libcuda.so.1, opened at run time.
//
// Owner: the caller, who hands it to a Driver. Any thread.
// 1. Nothing of CUDA happens before init() is called on what is returned: no context, no device is touched.
// 2. The library is never closed: the CUDA runtime of this process and its threads use it too.
// 3. Every function is asked for in the version of calls.def, from cuGetProcAddress; a driver that lacks one is refused here.
#pragma once

#include <memory>

#include "core/status.h"
#include "driver/cuda/api.h"

namespace tutti::driver::cuda {

/// The oldest driver that has cuGetProcAddress, and all calls of calls.def in the versions that are asked for.
inline constexpr int32_t kOldestDriver = 11070;

/// SystemError: no such library, or it is no CUDA driver, or one that is too old; the text says which, and what was asked for.
Result<std::unique_ptr<Api>> openDriver(const char* library = "libcuda.so.1");

}  // namespace tutti::driver::cuda
