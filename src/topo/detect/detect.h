// Completes a machine's XML by what the driver, the network plugins and the kernel say.
//
// Functions that change a tree which the caller owns; any thread, one at a time for a tree.
// 1. What the XML says already stays: a file of the vendor's wins over detection.
// 2. Devices that the kernel hides hang below a CPU with numaid −1.
// 3. Devices of one bridge are in order of their PCI address.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "topo/detect/sysfs.h"
#include "topo/xml.h"

namespace tutti::topo::detect {

/// What the driver knows of a GPU.
struct GpuFacts {
  struct Link {
    std::string target;    ///< PCI address of the other side.
    int count = 0;         ///< Links to it.
    std::string pciClass;  ///< Of the other side, should the kernel not know it; empty for an NVSwitch.
  };
  std::string busId;
  int dev = 0;
  int sm = 0;
  bool gdr = false;
  std::vector<Link> nvlinks;
  int c2cLinks = 0;
  int c2cMBps = 0;  ///< Of one of them.
};

/// What a network plugin knows of a net.
struct NetFacts {
  std::string name;
  std::string pciPath;  ///< As plugins give it, "/sys/devices/…" or "/sys/class/…/device"; empty for a virtual one.
  int dev = 0;
  int speedMbps = 0;
  int port = 0;
  float latencyUs = 0;
  uint64_t guid = 0;
  int maxConnections = 0;
  bool gdr = false;
};

/// A machine that nothing is known of yet.
Document emptyMachine();

/// Error: a PCI address that is none.
Status addGpu(Document& machine, const Sysfs& sysfs, const GpuFacts& gpu);
/// The NUMA nodes that the machine does not have yet, rising; where the kernel knows none, CPU 0, unless there is any CPU.
void addCpus(Document& machine, const Sysfs& sysfs);
/// Of each NUMA node, in MiB. Apart from the rest, because machines may be given more at run time, and the same machine has to have the
/// same hash.
void addMemory(Document& machine, const Sysfs& sysfs);
/// Error: a virtual net on a machine without any CPU in it yet.
Status addNet(Document& machine, const Sysfs& sysfs, const NetFacts& net);

}  // namespace tutti::topo::detect
