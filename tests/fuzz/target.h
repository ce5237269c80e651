// What every target of the fuzzer defines. NAME_fuzz.cc is linked with entry.cc, which is libFuzzer's way in, or with NAME_replay_test.cc,
// which runs the same function without it.
//
// No state that outlives a call; one thread.
// 1. A broken promise aborts, and says which; whatever the input, nothing else ends the program.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::fuzz {

void run(std::string_view input);

/// Valid inputs of every kind, to begin with.
std::vector<std::string> seeds();

inline void promise(bool isKept, std::string_view what) {
  if (isKept) return;
  std::fprintf(stderr, "promise broken: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

}  // namespace tutti::fuzz
