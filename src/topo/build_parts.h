// The later steps of buildSystem, which work on the graph alone. Only build.cc and its tests include this.
#pragma once

#include "topo/graph.h"

namespace tutti::topo {

/// Broadcom switches that show themselves as a switch of switches, though every port has the full bandwidth, become one.
void flattenSwitches(System& system);

/// Links every CPU with every other of its host.
void connectCpus(System& system);

/// Puts the link towards the CPU last in every node of the PCI trees.
void sortLinks(System& system);

}  // namespace tutti::topo
