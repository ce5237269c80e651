// libnvidia-ml.so.1, opened at run time.
//
// Owner: the caller, who hands it to Nvml. Any thread.
// 1. The library is never closed: others in this process may use it too.
#pragma once

#include <memory>

#include "core/status.h"
#include "driver/nvml/api.h"

namespace tutti::driver::nvml {

/// SystemError: no such library, or one that lacks what every version has had for years; the text says which.
Result<std::unique_ptr<Api>> openNvml(const char* library = "libnvidia-ml.so.1");

}  // namespace tutti::driver::nvml
