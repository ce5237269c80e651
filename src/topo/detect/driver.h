// What NVML knows of a GPU, as the facts that detection takes.
//
// A pure translation of answers; any thread that may ask the Nvml.
// 1. Links that are down do not count; those whose other side is not said lead to a switch that nobody sees.
#pragma once

#include <string>

#include "core/status.h"
#include "driver/nvml/nvml.h"
#include "topo/detect/detect.h"

namespace tutti::topo::detect {

/// `sm` (compute capability × 10) and `gdr` are CUDA's to say. C2C links are not asked for. Error: NVML's.
Result<GpuFacts> askNvml(driver::nvml::Nvml& nvml, const std::string& busId, int sm, bool gdr);

}  // namespace tutti::topo::detect
