// What the fuzzer of channels runs, for it and for the test that replays: a machine is searched, a graph file is read for it.
// No state; aborts when a promise is broken.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::topo::fuzz {

/// The text is a topology, then a line "==", then a graph file. What is found in the one and accepted of the other is checked, written
/// and read again.
void runChannels(std::string_view text);

std::vector<std::string> channelSeeds();

}  // namespace tutti::topo::fuzz
