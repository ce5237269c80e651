// What the kernel says of PCI devices and CPUs, from files that may be a recorded tree or a recording instead of the machine's.
//
// Owner: whoever detects. Any thread; every question reads files anew. A file that is not there is an absent fact, never an error.
// 1. Device paths are resolved as the kernel links them, so that the chain of bridges can be read off them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topo/affinity.h"
#include "topo/detect/files.h"

namespace tutti::topo::detect {

struct CpuFacts {
  std::string arch;    ///< x86_64, arm64, ppc64; empty when it cannot be told.
  std::string vendor;  ///< Of x86_64.
  int family = 0;      ///< As the reference counts: base family + extended family × 16.
  int model = 0;
};

/// Where a device hangs: below another device, or at the CPU itself.
struct Above {
  std::string busId;  ///< Of the upstream port of the switch above; empty for none.
  int numa = -1;      ///< Of the CPU, where busId is empty.
};

class Sysfs {
 public:
  explicit Sysfs(std::string root = "/") : Sysfs(std::make_shared<RootFiles>(std::move(root))) {}
  explicit Sysfs(std::shared_ptr<const Files> files) : files_(std::move(files)) {}

  /// A file of a PCI device ("class", "vendor" …), without its line break; nullopt when either is not there.
  std::optional<std::string> read(std::string_view busId, std::string_view file) const;

  /// The slower of the device's own greatest speed and that of the port that it is plugged into, and likewise the narrower width.
  std::string linkSpeed(std::string_view busId) const;
  int linkWidth(std::string_view busId) const;

  /// nullopt when the kernel does not know the device, as in virtual machines that hide it.
  std::optional<Above> above(std::string_view busId) const;

  /// Those that are online; empty for a kernel that knows no NUMA.
  std::vector<int> numaNodes() const;
  /// As a mask. Of node 0 of a kernel that knows no NUMA: all CPUs that are online.
  std::optional<std::string> affinity(int numa) const;
  /// From that NUMA node to those that are online, as the XML has them (host_devices.h); nullopt when the kernel does not say.
  std::optional<std::string> distances(int numa) const;
  std::optional<int64_t> memoryMiB(int numa) const;
  CpuFacts cpu() const;

  /// The PCI address that a network device's path leads to; nullopt for one that is no PCI device.
  std::optional<std::string> busIdOfPath(const std::string& devicePath) const;

 private:
  std::optional<std::string> devicePath(std::string_view busId) const;      // resolved
  std::optional<std::string> readAbove(std::string_view busId, std::string_view file) const;  // of the device that it hangs on

  std::shared_ptr<const Files> files_;
};

/// Whether it is written as the kernel writes a PCI address: 0000:1b:00.0.
bool isBusId(std::string_view text);

}  // namespace tutti::topo::detect
