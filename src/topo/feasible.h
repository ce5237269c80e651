// Is a set of channels one that the machine can carry? Checks a ChannelSet against the System, knowing nothing of how it was found.
//
// A pure function; any thread. What is checked:
// 1. Every channel names every GPU once (Nvls: one head, and no head twice), and two nets where the system is `inter`.
// 2. Every hop has a path no farther than typeIntra or typeInter; hops of trees in both directions.
// 3. Nets obey the pattern and crossNic (a tree of pattern Tree uses one net; rails; pairs).
// 4. No link and no net (summed over the nets of a rail) carries more than its bandwidth, charged as charges.h says.
#pragma once

#include <string>
#include <vector>

#include "topo/search.h"

namespace tutti::topo {

struct Feasibility {
  std::vector<std::string> violations;  ///< Empty: feasible. Each names the channel or link, the value and what is allowed.
  size_t overloads = 0;                 ///< How many of these are of rule 4; they are the last ones.
  std::vector<float> loadGBps;          ///< By link: what the channels charge it, every hop once in its listed direction.
  /// The busiest link when every hop carries data both ways, as the two trees of an all-reduce do: load of both directions of hops on
  /// it over its bandwidth. Above 1 the reference's way of counting promises more than that traffic can get.
  float twoWayLoad = 0;
  LinkId twoWayLink = kNoLink;

  bool ok() const { return violations.empty(); }
};

Feasibility checkChannels(const System& system, const Paths& paths, const SearchRequest& request, const ChannelSet& set);

}  // namespace tutti::topo
