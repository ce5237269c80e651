// Rings, and the nets that they cross by, for ranks on several hosts: from the topology of each host.
//
// A pure function; any thread.
// 1. Ranks that give the same hosts and settings get the same layout: nobody sends channels to anybody. Hosts of one topology whose ranks
//    stand alike are searched once.
// 2. Channels of a host are searched with its nets. Every GPU is a stop of them; ranks on host devices are searched by NUMA nodes, each a
//    stop of all its ranks, because they meet in its memory. Ranks of a host stay beside each other in every ring.
// 3. The last rank of a host in a ring sends by the net that the channel leaves by, the first one receives by the one that it enters by.
//    Everything else that crosses hosts uses net 0 on both sides (connect/layout.h, netBetween()).
// 4. On host devices the channels begin at other ranks of their NUMA nodes in turn, so that one thread does not serve all nets.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "connect/channels.h"
#include "connect/layout.h"
#include "core/status.h"
#include "machine/settings.h"
#include "topo/xml.h"

namespace tutti::machine {

/// Where a rank of several hosts computes.
struct RankOnHost {
  int32_t rank = 0;
  int32_t dev = -1;    ///< Of its GPU; -1: a host device.
  int32_t numa = -1;   ///< Of a host device; -1: of none alone.
  int32_t cache = -1;  ///< Likewise, within the NUMA node.
};

struct HostRanks {
  const topo::Document* machine = nullptr;  ///< With its nets; outlives the call.
  uint64_t hash = 0;                        ///< Of it: hosts with the same have the same document.
  std::vector<RankOnHost> ranks;            ///< Rising.
};

struct HostsLayout {
  connect::Layout layout = connect::Layout::natural(0);
  connect::Channels channels;
  int32_t searches = 0;  ///< How many hosts were searched; the others are like them.
};

/// `hosts`: in the order of their first ranks, together all ranks once. Error: a host without nets, or without the NUMA nodes or GPUs that
/// its ranks name; ranks with and without GPUs; a graph file that does not fit.
Result<HostsLayout> findHostsLayout(std::span<const HostRanks> hosts, const Settings& settings);

/// Of ranks on host devices, where NCCL_GRAPH_FILE states channels of as many GPUs as every host has ranks; none where it does not. What a
/// host is like beside its nets does not matter then. Error: a file that makes no sense, or names nets that a host has not.
Result<std::optional<HostsLayout>> findStatedLayout(std::span<const HostRanks> hosts, const topo::Document& graphs);

}  // namespace tutti::machine
