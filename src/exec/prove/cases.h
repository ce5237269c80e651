// What `tutti prove` proves by default, and how it shows the outcome.
// Pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "exec/prove/prove.h"

namespace tutti::exec::prove {

enum class Extent : uint8_t {
  Quick,  ///< every algorithm, rank counts to 64 by sample
  Full,   ///< every rank count to 64, and 100, 127 and 1000 where steps grow no faster than rings do
};

/// Cases of one algorithm, smallest first.
std::vector<Case> standardCases(const Subject& algorithm, Extent extent);
/// Cases of all algorithms, then of every two PeerMemory algorithms in turn.
std::vector<Case> standardCases(Extent extent);

/// One row an algorithm: what was proved, or the first failure. Markdown, with a heading row.
std::string markdownTable(std::span<const Proof> proofs);

}  // namespace tutti::exec::prove
