// What a hop costs the links of its path: the rules of the reference, written once for the search and for the checker.
//
// Pure functions; any thread. A weight is in fortieths of the hop's speed, so that halves, eighths and 6/5 are whole numbers:
// 1. Every link of the path is charged the speed in the direction of the path.
// 2. Over an Intel CPU (path type Phb, from a GPU) PCI links are charged 6/5 of it.
// 3. Into a GPU older than sm 80, from anything but a GPU, the reverse link is charged an eighth for read requests.
// 4. Into a POWER CPU over NVLink the reverse link is charged the full speed.
#pragma once

#include <vector>

#include "topo/graph.h"
#include "topo/paths.h"

namespace tutti::topo {

inline constexpr int kWholeWeight = 40;

struct Charge {
  LinkId link;
  int32_t weight = 0;  ///< In 1/kWholeWeight of the speed.
};

/// Appends the charges of the path from → to; one entry a link.
void appendCharges(const System& system, const Paths& paths, NodeId from, NodeId to, std::vector<Charge>& charges);

/// Two nets are one rail when they are the same port of the same NIC.
bool sameRail(const System& system, NodeId net1, NodeId net2);

}  // namespace tutti::topo
