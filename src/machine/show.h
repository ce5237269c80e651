// What was found on a machine and what ranks make of it, as lines of a log.
//
// Pure functions; any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "machine/gpu_layout.h"

namespace tutti::machine {

/// What there is, and a table of the channel sets: how many, how fast, over which paths, and the proven bound.
std::vector<std::string> describe(const GpuLayout& found);

/// "host devices: ranks 0 1 on NUMA node 0, 2 3 on NUMA node 1": which ranks share memory.
std::string describePlaces(std::span<const connect::RankPlace> places);

/// "Channel 00/02 crosses hosts at 3[1]>4[0] 7[1]>0[0]" for every track: from rank 3 by its host's device 1 to device 0 of rank 4's.
/// `hostOf`: by rank.
std::vector<std::string> describeNets(const connect::Layout& layout, std::span<const int32_t> hostOf);

/// "Channel 00/02 : 0 2 1 3" for every track, and a line that gives a rank's parent and children in the two trees of each:
/// "Trees [0] 2/-1/-1->0->-1 [1] …".
std::vector<std::string> describeRings(const connect::Layout& layout);
std::string describeTrees(const connect::Layout& layout, Rank rank);

}  // namespace tutti::machine
