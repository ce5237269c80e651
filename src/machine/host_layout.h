// Rings and trees for ranks that compute with host devices, where NCCL_GRAPH_FILE states them.
//
// Pure functions; any thread.
// 1. Host devices have no dev of their own: dev n of the file is the n-th rank of its host. Speeds and path types are read, and mean
//    nothing. A net of the file is a device of the network.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "connect/channels.h"
#include "connect/layout.h"
#include "core/status.h"
#include "topo/xml.h"

namespace tutti::machine {

/// None where the file's channels are of another number of GPUs than there are ranks, as for a part of a split communicator. Error: a
/// file that makes no sense, or has no rings. Without trees their place is taken by the rings, cut open.
Result<std::optional<connect::Layout>> findHostLayout(const topo::Document& graphs, int32_t ranks);

/// The same of one host among several; `ranks` of it are 0 to ranks − 1 in what is found, `nets` the devs of its nets. Error also: a
/// channel that does not begin and end with one of them.
Result<std::optional<connect::NodeGraphs>> findHostNode(const topo::Document& graphs, int32_t ranks, std::span<const int32_t> nets);

}  // namespace tutti::machine
