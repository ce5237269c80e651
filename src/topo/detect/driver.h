// What CUDA and NVML know of GPUs, as the facts that detection takes.
//
// A pure translation of answers; any thread that may ask the Nvml.
// 1. Links that are down do not count; those whose other side is not said lead to a switch that nobody sees.
#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "driver/cuda/driver.h"
#include "driver/nvml/nvml.h"
#include "topo/detect/detect.h"

namespace tutti::topo::detect {

/// `sm` (compute capability × 10) and `gdr` are CUDA's to say. Error: NVML's.
Result<GpuFacts> askNvml(driver::nvml::Nvml& nvml, const std::string& busId, int sm, bool gdr);

/// All GPUs that CUDA shows this process; `hiddenToo`: and those that only NVML knows, by rising dev, of which `gdr` is what the others
/// have. Where NVML is null they have CUDA's numbers and no NVLinks. Error: CUDA's or NVML's.
Result<std::vector<GpuFacts>> askDrivers(driver::cuda::Driver& cuda, driver::nvml::Nvml* nvml, bool hiddenToo = false);

}  // namespace tutti::topo::detect
