// Rings and trees for ranks that compute with host devices, where NCCL_GRAPH_FILE states them.
//
// A pure function; any thread.
// 1. Host devices have no dev of their own: dev n of the file is rank n. Speeds and path types are read, and mean nothing.
#pragma once

#include <optional>

#include "connect/layout.h"
#include "core/status.h"
#include "topo/xml.h"

namespace tutti::machine {

/// None where the file's channels are of another number of GPUs than there are ranks, as for a part of a split communicator. Error: a file
/// that makes no sense, or has no rings. Without trees their place is taken by the rings, cut open.
Result<std::optional<connect::Layout>> findHostLayout(const topo::Document& graphs, int32_t ranks);

}  // namespace tutti::machine
