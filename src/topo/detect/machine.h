// A whole machine: what drivers, networks and the system say of it, its XML, and a recording from which the same XML comes again.
//
// Plain values; any thread. thisProcessMayUse() asks the system, the rest are functions of what they are given.
// 1. A recording holds what detection has asked for and was told, and nothing else: no host name, no UUID, no serial number. GUIDs of nets,
//    which are serial numbers, are replaced by numbers that are equal where the GUIDs are.
// 2. A recording may be hostile: every value is checked, with its place.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "topo/affinity.h"
#include "topo/detect/detect.h"
#include "topo/detect/files.h"
#include "topo/detect/sysfs.h"
#include "topo/xml.h"

namespace tutti::topo::detect {

struct MachineFacts {
  std::vector<GpuFacts> gpus;
  std::vector<NetFacts> nets;
  CpuSet allowed;  ///< CPUs that the process may use.
};

/// What cpusets and the process's own affinity leave of the CPUs that are online. Error: the system's.
Result<CpuSet> thisProcessMayUse();

/// `machine` (emptyMachine(), or a vendor's file) with all GPUs, all NUMA nodes and all nets. Error: as addGpu and addNet.
Status complete(Document& machine, const Sysfs& sysfs, const MachineFacts& facts);

struct Recording {
  MachineFacts facts;
  std::shared_ptr<const Files> files;
};

/// The GUIDs of invariant 1.
void hideGuids(MachineFacts& facts);

/// After complete() has asked `files` on behalf of a Sysfs.
Element writeRecording(const MachineFacts& facts, const RecordingFiles& files);

/// Error: what is no recording, with its place.
Result<Recording> readRecording(const Document& document);

}  // namespace tutti::topo::detect
