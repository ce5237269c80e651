// Host devices in a topology: on which NUMA node each stands, what is between them, and the order of NUMA nodes that suits a ring.
//
// Pure functions of plain values; any thread.
// 1. A host device is a <hostdev dev rank cpus> below the <cpu> that it runs on. This element, and memory and distances of a <cpu>, are
//    this library's own; the reference reads past them.
// 2. Two of a NUMA node meet in its memory (path type LOC), those of different ones over the link between the CPUs (SYS).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "topo/affinity.h"
#include "topo/view.h"
#include "topo/xml.h"

namespace tutti::topo {

struct HostDevice {
  int rank = 0;
  int numa = 0;  ///< As numaid of a <cpu>.
  CpuSet cpus;   ///< Where its threads may run; empty: nobody has said.
};

inline constexpr int kMostHostDevices = 1024;

/// `count` devices over the NUMA nodes, in proportion to the CPUs that `allowed` leaves of each (nothing: all of them), ranks of a node
/// beside each other, each with CPUs of its own as long as there are enough. 0: one for each CPU, at most 8 for each NUMA node.
/// Error: a machine without <cpu>, or whose CPUs nobody has said.
Result<std::vector<HostDevice>> spreadHostDevices(const Document& machine, int count, const std::optional<CpuSet>& allowed);

/// In the place of those that the machine has. Error: a numaid that no <cpu> has.
Status addHostDevices(Document& machine, std::span<const HostDevice> devices);

/// The system with the machine's <hostdev>, and the paths between them; rank 0 looks. Error: as buildSystem; that there is none.
Result<View> makeHostView(const Document& machine);

/// "0:10,1:21": how far the memory of NUMA nodes is, as the kernel counts (10: one's own). nullopt: no such text.
std::optional<std::vector<NumaDistance>> parseDistances(std::string_view text);

/// NUMA nodes in an order in which the sum of distances around the ring is least, as `machine` states them; the given order where that is
/// as good, or where distances are not known. Begins with the first one given. More than kMostOrdered: each time the nearest one next.
std::vector<int32_t> orderNumaNodes(const Document& machine, std::span<const int32_t> nodes);
inline constexpr size_t kMostOrdered = 8;

}  // namespace tutti::topo
