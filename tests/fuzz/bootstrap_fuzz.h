// What the fuzzer runs, for it and for the test that replays. No state; aborts when a promise is broken.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tutti::bootstrap::fuzz {

void run(std::span<const std::byte> bytes);
/// Valid inputs of every kind, to begin with.
std::vector<std::vector<std::byte>> seeds();

}  // namespace tutti::bootstrap::fuzz
