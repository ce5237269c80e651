// What the fuzzer of topology files runs, for it and for the test that replays. No state; aborts when a promise is broken.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::topo::fuzz {

/// Reads the text as a topology; what is accepted is written, read again, and looked at from one node, two, and a clique of two.
void run(std::string_view text);

/// Small valid files of every dialect and kind of machine, to begin with.
std::vector<std::string> seeds();

}  // namespace tutti::topo::fuzz
