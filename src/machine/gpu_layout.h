// Ring and trees for ranks that compute with GPUs of one host, from the host's topology.
//
// A pure function, and a cache of its answers. findGpuLayout: any thread. GpuLayouts: any thread; owner: the process.
// 1. Ranks that give the same machine, devs and settings get the same layout: nobody sends channels to anybody.
// 2. Of rings that carry the same, the one in order of ranks is taken; and where all GPUs are equally near, trees that are as shallow as
//    can be, instead of chains.
// 3. GPUs of one host meet in memory, never over the network, however fast that is.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "connect/channels.h"
#include "connect/layout.h"
#include "core/status.h"
#include "machine/settings.h"
#include "machine/survey.h"
#include "topo/affinity.h"
#include "topo/view.h"

namespace tutti::machine {

struct GpuLayout {
  connect::Layout layout = connect::Layout::natural(0);
  connect::Channels channels;
  topo::View view;                     ///< Of rank 0's node: all GPUs of the ranks, where memory joins them.
  topo::Graphs graphs;                 ///< Of the same.
  bool isUniform = false;              ///< All paths between GPUs are alike.
  std::vector<topo::CpuSet> nearCpus;  ///< By rank: the CPUs of its GPU; empty where nobody knows.
};

/// `devs`: by rank, as devOf() says. Error: a GPU that two ranks have, or that the machine has not; a machine or a graph file that makes no
/// sense; GPUs that nothing joins.
Result<GpuLayout> findGpuLayout(const Machine& machine, std::span<const int> devs, const Settings& settings);

class GpuLayouts {
 public:
  /// findGpuLayout's answer, kept for the latest kMostKept.
  std::shared_ptr<const Result<GpuLayout>> find(const Machine& machine, std::span<const int> devs, const Settings& settings);

 private:
  static constexpr size_t kMostKept = 64;
  struct Key {
    uint64_t machine;
    uint64_t settings;
    std::vector<int> devs;
    auto operator<=>(const Key&) const = default;
  };
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const Result<GpuLayout>>> known_;
};

}  // namespace tutti::machine
