// Who neighbours whom in a communicator: from where its ranks run and what they compute with, as their arrivals say.
//
// Owner: the process. Any thread. What the machine is like is found out when a rank first arrives, and kept.
// 1. All ranks come to the same layout: it depends on the arrivals of all ranks alone, which all of them have.
// 2. Ranks on several hosts know all of them (comm/sites.h): rings cross at the nets of the searched channels.
// 3. What cannot be found out, or differs between ranks that have to agree, is one warning, and the ring is in order of ranks. What the
//    user names (files, levels) and makes no sense is an error.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "comm/devices.h"
#include "comm/encounter.h"
#include "comm/sites.h"
#include "connect/layout.h"
#include "machine/gpu_layout.h"
#include "machine/survey.h"
#include "transport/net/network.h"

namespace tutti::comm {

/// What a communicator was given. Plain; any thread.
struct RankLayout {
  connect::Layout layout = connect::Layout::natural(0);
  int32_t fullestHost = 0;  ///< The most ranks that one host has; 0 on GPUs of one host.
  topo::CpuSet nearGpu;  ///< Where threads that serve the rank belong; empty: anywhere.
};

class Layouts {
 public:
  explicit Layouts(Devices& devices) : devices_(devices) {}
  ~Layouts() { await(); }
  Layouts(const Layouts&) = delete;
  Layouts& operator=(const Layouts&) = delete;

  /// Begins to find out what the machine with its GPUs is like, while somebody opens these. Where useGpus(); to be followed by await(),
  /// before anything else can happen to the GPUs.
  void begin();
  void await();

  /// Puts into `arrival` where the calling thread runs and, if `gpu` is one (not −1), which it is of the machine; it has been opened.
  Status describe(int32_t gpu, Arrival& arrival);

  /// What other hosts are to know of this one. A machine that cannot be found out has no hash; what the user names and makes no sense is an
  /// error.
  Result<Site> siteOf(const transport::net::Network& network, bool onGpu);

  /// `nodeRanks`: TUTTI_NODE_RANKS; not 0: it decides alone. Writes what NCCL_TOPO_DUMP_FILE and NCCL_GRAPH_DUMP_FILE want of this rank.
  Result<RankLayout> find(const Outcome& outcome, bool onGpu, int32_t nodeRanks);

 private:
  struct Known {
    std::string topoFile;
    uint64_t generation = 0;  // of the devices
    std::shared_ptr<const Result<machine::Machine>> machine;
  };
  std::shared_ptr<const Result<machine::Machine>> machineOf(bool withGpus);
  Status takeStated(const Outcome& outcome, connect::Layout& layout);
  Result<RankLayout> findOnGpus(const Outcome& outcome, int32_t nodeRanks);
  Status takeHosts(const Outcome& outcome, bool onGpu, connect::Layout& layout);
  void dump(const Outcome& outcome, bool onGpu, const machine::GpuLayout* found);

  Devices& devices_;
  std::mutex mutex_;  ///< protects `known_`; held while a machine is looked at, so that one thread does it for all
  Known known_[2];    // without GPUs, with them
  machine::GpuLayouts gpuLayouts_;
  std::mutex aheadMutex_;  ///< protects what follows
  std::thread ahead_;      // at machineOf(true)
  std::optional<uint64_t> begunFor_;  // the generation of the devices
};

}  // namespace tutti::comm
