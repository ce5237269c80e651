// The networks that ranks on several hosts may use, each with the engine that drives it.
//
// Owner: the process, for good. Any thread.
// 1. An engine lives as long as communicators that use it: its thread and its descriptors go with the last of them. Another for the same
//    network is made when it has gone.
// 2. NCCL_NET wins over what a configuration names. Where nothing is named: the first external network of NCCL_NET_PLUGIN that has devices,
//    else sockets. All ranks must come to the same one; pipes between different ones are refused (comm/distant.h).
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "progress/engine.h"
#include "transport/net/network.h"

namespace tutti::comm {

/// The network that engine() would drive, opened and idle; errors are those of engine().
Result<std::shared_ptr<transport::net::Network>> openNetwork(const std::string& wanted);

class Networks {
 public:
  /// `wanted`: the name that a configuration gives, in any case; empty: none. InvalidUsage when there is no network of that name, or no
  /// interface to use. `use`: the communicator that asks, if one does: where it is the first, the network is opened for it.
  Result<std::shared_ptr<progress::Engine>> engine(const std::string& wanted, const transport::net::Use& use = {});
  /// In a process that has just been forked, whose only thread this is: engines of the other one do not run here.
  void forgetEngines();

 private:
  struct Life;
  struct Entry {
    std::weak_ptr<Life> life;
    bool isRunning = false;  ///< the engine, also while it ends
  };

  std::mutex mutex_;  ///< held while a network is opened and an engine begins
  std::condition_variable ended_;
  std::map<std::string, Entry> entries_;  // by what was wanted, in lower case
};

}  // namespace tutti::comm
