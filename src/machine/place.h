// Where a thread may run, as a place that its neighbours can share; and threads kept near a GPU.
//
// Plain values and functions; any thread. ThreadNear belongs to the thread that makes it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/status.h"
#include "machine/survey.h"
#include "topo/affinity.h"

namespace tutti::machine {

/// −1 where nobody knows, or where the CPUs are of several.
struct Place {
  int32_t numa = -1;   ///< The machine's number of the NUMA node that has all CPUs of the thread.
  int32_t cache = -1;  ///< The first CPU below the last-level cache that all of them share.
  bool operator==(const Place&) const = default;
};

Place placeOf(const Machine& machine, const topo::CpuSet& allowed);

/// Of the last-level cache that the first of the CPUs is below; 0 where nobody knows.
uint64_t cacheBytesOf(const topo::detect::Files& files, const topo::CpuSet& cpus);

/// The CPUs below each last-level cache that any of `cpus` is below, rising; empty where nobody knows.
std::vector<topo::CpuSet> cachesOf(const topo::detect::Files& files, const topo::CpuSet& cpus);

/// The calling thread runs on `cpus` for a scope, and afterwards where it ran before; nowhere else where the system refuses. An empty set
/// leaves it alone.
class ThreadNear {
 public:
  explicit ThreadNear(const topo::CpuSet& cpus);
  ~ThreadNear();
  ThreadNear(const ThreadNear&) = delete;
  ThreadNear& operator=(const ThreadNear&) = delete;

 private:
  topo::CpuSet before_;
};

/// For good. False where the system refuses.
bool bindThread(const topo::CpuSet& cpus);

}  // namespace tutti::machine
