// The networks that ranks on several hosts may use, each with the engine that drives it.
//
// Owner: the process. Any thread. An engine lives as long as this.
// 1. NCCL_NET wins over what a configuration names. Where nothing is named: the first external network of NCCL_NET_PLUGIN that has devices,
//    else sockets. All ranks must come to the same one; pipes between different ones are refused (comm/distant.h).
#pragma once

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
  Result<progress::Engine*> engine(const std::string& wanted, const transport::net::Use& use = {});

 private:
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<progress::Engine>> engines_;  // by what was wanted, in lower case
};

}  // namespace tutti::comm
