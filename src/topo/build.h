// The system graph of an XML.
//
// Pure function; any thread. Steps: the trees below the CPUs, NVLink (or XGMI), C2C, links between switches, folding of switches that show
// one chip as several, links between CPUs, and the order of links that searches rely on.
// 1. Only GPUs with a rank and nets with a dev become nodes.
// 2. What the XML lacks, and detection would have to add, is said in `notes`; what makes no sense is an error.
#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "topo/graph.h"
#include "topo/xml.h"

namespace tutti::topo {

struct Build {
  System system;
  std::vector<std::string> notes;  ///< What was missing or left out, a sentence each, with its place.
};

/// `localHostHash` tells which host's system is the own one; one that no CPU has is an error unless the XML has no CPU at all.
Result<Build> buildSystem(const Document& xml, uint64_t localHostHash);

}  // namespace tutti::topo
