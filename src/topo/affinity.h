// Sets of logical CPUs, in the two ways that Linux writes them, and which of them serve a GPU.
//
// Plain values and pure functions; any thread.
// 1. A set holds no CPU beyond kMostCpus: texts come from files that anybody may have written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topo/graph.h"
#include "topo/paths.h"

namespace tutti::topo {

inline constexpr int kMostCpus = 1 << 16;

class CpuSet {
 public:
  /// "ffff,00000000": groups of 32 bits, the highest first. nullopt: no such text, or a CPU beyond kMostCpus.
  static std::optional<CpuSet> fromMask(std::string_view text);
  /// "0-3,8": nothing is the empty set. nullopt as above.
  static std::optional<CpuSet> fromList(std::string_view text);

  void add(int cpu);
  bool has(int cpu) const;
  int count() const;
  bool empty() const { return words_.empty(); }
  std::vector<int> cpus() const;  ///< Rising.
  std::string mask() const;       ///< As fromMask reads it; "0" for none.
  std::string list() const;       ///< As fromList reads it.
  CpuSet operator&(const CpuSet& other) const;
  bool operator==(const CpuSet&) const = default;

 private:
  void shorten();

  std::vector<uint32_t> words_;  // the last one is not 0
};

/// The CPUs of a Cpu node; nullopt when nobody has said.
std::optional<CpuSet> cpusOf(const Node& cpu);

/// Where a thread that serves a GPU should run: the CPUs of its nearest Cpu node that `allowed` has; all of those with `ignoreAllowed`
/// (NCCL_IGNORE_CPU_AFFINITY). Empty: leave the thread where it is, as nothing is known or nothing of it is allowed.
CpuSet cpusForGpu(const System& system, const Paths& paths, NodeId gpu, const CpuSet& allowed, bool ignoreAllowed);

}  // namespace tutti::topo
