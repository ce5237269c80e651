// From a machine's XML to the part of it that a communicator uses: its ranks' GPUs, all nets, and what leads to them.
//
// Pure functions of trees of elements; any thread.
// 1. Order is that of the reference, in which every rank writes down its own GPU and the trees are fused by rank: at each level first
//    what rank 0 needs, then what rank 1 adds. arrange() gives the same tree at once.
// 2. What leads to no GPU in use and to no net is left out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "topo/xml.h"

namespace tutti::topo {

struct UsedGpu {
  int dev = 0;   ///< As the XML's <gpu dev=…> says.
  int rank = 0;  ///< In the communicator.
};

/// One host of those that the system graph spans (several only in a multi-node NVLink clique).
struct UsedHost {
  uint64_t hostHash = 0;
  std::vector<UsedGpu> gpus;  ///< In order of rank.
};

/// The devs that the XML's GPUs have, in rising order. Error: no number, or one given twice.
Result<std::vector<int>> gpuDevs(const Document& machine);

/// The part of `machine` that the hosts use, each host being such a machine. Error: a dev that it does not have.
Result<Document> arrange(const Document& machine, std::span<const UsedHost> hosts);

/// The part that one rank writes down: its GPU, all nets. A clique's ranks exchange these and fuse them.
Result<Document> partOfRank(const Document& machine, uint64_t hostHash, UsedGpu gpu);

/// Adds to `into` what `other` has beyond it. Elements are the same when name and all attributes agree. Error: roots differ.
Status fuse(Element& into, const Element& other);

/// Marks every net as one that reduces, or as one that does not.
void markCollNets(Element& root, bool canReduce);

}  // namespace tutti::topo
