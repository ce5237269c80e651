// How fast links are, in GB/s one way: the reference's tables, so that both find the same machine.
//
// Pure functions; any thread.
#pragma once

#include <optional>
#include <string_view>

#include "topo/graph.h"

namespace tutti::topo {

float nvlinkGBps(int sm);                    ///< Of one link of a GPU of that compute capability (× 10).
float xgmiGBps(std::string_view gcn);        ///< Of one link of an AMD GPU, named 908, 910, gfx942 …
float betweenCpusGBps(const CpuInfo& cpu);   ///< From this CPU to another one of the host.

/// What one host device moves to or from the memory of its NUMA node, as src/tune/platforms/host.json has it.
inline constexpr float kHostDeviceGBps = 20;

/// Of a PCI link: `speed` as sysfs writes it ("32.0 GT/s PCIe"), `width` in lanes, 0 for unknown (16). An empty or unknown speed counts as
/// 8 GT/s; nullopt when the text is no speed at all.
std::optional<float> pciGBps(std::string_view speed, int width);

/// What "6" (family) and a model number mean for an Intel CPU, and likewise for others; Undefined where it makes no difference.
CpuModel cpuModel(CpuVendor vendor, int family, int model);

}  // namespace tutti::topo
