// Channels with a head: NVLS (the NVSwitch reduces for the head) and CollNet direct (the head stands between the net and all others).
//
// Internal to the search of topo/; a pure function; one thread. In closed form: heads are matched to nets, nearest first, and the speeds
// follow from what the links hold.
#pragma once

#include "topo/search.h"

namespace tutti::topo {

inline constexpr int kMostNvlsHeads = 32;
inline constexpr int kMostDirectHeads = 8;

Result<ChannelSet> searchHeads(const System& system, const Paths& paths, const SearchRequest& request);

}  // namespace tutti::topo
