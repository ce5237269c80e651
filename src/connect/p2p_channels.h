// How many channels send and receive use: in all, and for one peer. The reference's rules.
//
// Pure functions; any thread.
#pragma once

#include "topo/graph.h"
#include "topo/paths.h"

namespace tutti::connect {

struct P2pChannels {
  int32_t all = 1;      ///< A power of two.
  int32_t perPeer = 1;  ///< A power of two, the same for all peers.
};

/// `channels`: of the collectives. Looks at all peers of the GPUs in `system`; ranks outside of it are reached through the network.
P2pChannels p2pChannels(const topo::System& system, const topo::Paths& paths, int32_t channels);

}  // namespace tutti::connect
