// The later steps of buildSystem. Only the files that make it up, and their tests, include this.
#pragma once

#include <span>
#include <string_view>

#include "core/status.h"
#include "topo/build.h"
#include "topo/graph.h"
#include "topo/xml.h"

namespace tutti::topo {

/// What a PCI class stands for where no child element says it.
NodeKind kindOfClass(std::string_view pciClass);

/// Adds NVLink, XGMI, C2C and the links between switches. `parents`: by node, what it hangs below in its PCI tree.
Status addLinks(const Document& xml, std::span<const NodeId> parents, Build& build);

/// Broadcom switches that show themselves as a switch of switches, though every port has the full bandwidth, become one.
void flattenSwitches(System& system);

/// Links every CPU with every other of its host.
void connectCpus(System& system);

/// Puts the link towards the CPU last in every node of the PCI trees.
void sortLinks(System& system);

}  // namespace tutti::topo
