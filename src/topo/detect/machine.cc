#include "topo/detect/machine.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace tutti::topo::detect {

Result<CpuSet> thisProcessMayUse() {
  // The kernel refuses a set that is smaller than its own, which nobody knows beforehand.
  for (size_t cpus = CPU_SETSIZE; cpus <= kMostCpus; cpus *= 2) {
    std::vector<cpu_set_t> raw(cpus / CPU_SETSIZE);
    const size_t bytes = raw.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, raw.data()) == 0) {
      CpuSet set;
      for (size_t cpu = 0; cpu < cpus; ++cpu) {
        if (CPU_ISSET_S(cpu, bytes, raw.data())) set.add(static_cast<int>(cpu));
      }
      return set;
    }
    if (errno != EINVAL) break;
  }
  return fail(Code::SystemError, "sched_getaffinity: {}", std::strerror(errno));
}

Status complete(Document& machine, const Sysfs& sysfs, const MachineFacts& facts) {
  for (const GpuFacts& gpu : facts.gpus) TUTTI_TRY(addGpu(machine, sysfs, gpu));
  // Nets that are PCI devices come before NUMA nodes that hold nothing, the others after them: they want some CPU to be there.
  const auto isPci = [&](const NetFacts& net) { return !net.pciPath.empty() && sysfs.busIdOfPath(net.pciPath).has_value(); };
  for (const NetFacts& net : facts.nets) {
    if (isPci(net)) TUTTI_TRY(addNet(machine, sysfs, net));
  }
  addCpus(machine, sysfs);
  for (const NetFacts& net : facts.nets) {
    if (!isPci(net)) TUTTI_TRY(addNet(machine, sysfs, net));
  }
  return {};
}

}  // namespace tutti::topo::detect
