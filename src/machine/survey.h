// This machine, as communicators see it: an XML of all its GPUs, switches and NUMA nodes, from a vendor's file and from detection.
//
// Owner: the process keeps one (comm/process.h). Functions of what they are given; any thread.
// 1. A file comes first: NCCL_TOPO_FILE, or else the one at kVirtualTopology. What it says stays; detection adds the rest.
// 2. Processes of a host come to the same document, and so to the same hash, whichever GPUs each of them may use: NVML tells of all.
//    Without NVML a process knows only its own.
// 3. Nets are not part of it, unless a file names them: GPUs of one host meet in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "driver/cuda/driver.h"
#include "driver/nvml/api.h"
#include "topo/detect/detect.h"
#include "topo/detect/files.h"
#include "topo/xml.h"

namespace tutti::machine {

/// Where virtual machines are told what they run on.
inline constexpr const char* kVirtualTopology = "/var/run/nvidia-topologyd/virtualTopology.xml";

struct Sources {
  driver::cuda::Driver* cuda = nullptr;  ///< Null: no GPU is looked for.
  std::function<Result<std::unique_ptr<driver::nvml::Api>>()> openNvml;
  std::shared_ptr<const topo::detect::Files> files;
  std::string topoFile;  ///< NCCL_TOPO_FILE; empty: kVirtualTopology, where it is there.
};

struct Machine {
  topo::Document document;
  uint64_t hash = 0;  ///< Of the document; never 0.
  std::vector<topo::detect::GpuFacts> gpus;
  std::shared_ptr<const topo::detect::Files> files;
  std::vector<std::string> notes;  ///< What could not be asked, and why.
};

/// What detection begins with: the file of invariant 1, or an empty machine. Error: a file that cannot be read.
Result<topo::Document> startOf(const Sources& sources);

/// Error: a file that cannot be read or makes no sense, a driver that fails.
Result<Machine> survey(const Sources& sources);

/// The GPUs that CUDA shows this process, and with NVML all others of the machine, by rising dev. That there is no NVML is a note.
Result<std::vector<topo::detect::GpuFacts>> findGpus(driver::cuda::Driver& cuda, const decltype(Sources::openNvml)& openNvml,
                                                     bool hiddenToo, std::vector<std::string>& notes);

/// What the machine's <gpu> at that PCI address has as dev; nullopt when it has no such GPU.
std::optional<int> devOf(const Machine& machine, const std::string& busId);

}  // namespace tutti::machine
