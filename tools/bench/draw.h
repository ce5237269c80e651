// Random inputs chosen so that what a reduction must give is known to the last bit.
//
// Pure: the same seed, index and ranks give the same values; any thread.
// 1. Moves and integers: any bits, NaN codes included for moves.
// 2. Sum, avg, mulsum of floats: multiples of one unit whose magnitudes, scaled and added, stay below 2^precision units; where
//    there are more ranks than that, the others hold zero. Every partial sum, in any order, is then exact.
// 3. Prod of floats: at most four factors 2^±1, one with a full mantissa, the rest ±1. Every partial product is exact.
// 4. Max, min of floats: any finite code.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "bench/options.h"
#include "core/types.h"

namespace tutti::bench {

/// Bits without pattern from three numbers.
uint64_t mixBits(uint64_t seed, uint64_t a, uint64_t b);

/// Rank `rank`'s factor for MulSum, as a code of `type`: any odd number for integers, a signed power of two for floats. It has no
/// seed, because an operator is created once and serves all inputs.
uint64_t drawScalar(DataType type, int rank);

/// Fills `codes[r]` with rank r's element at `index`; `op` is empty for moves.
void drawElement(DataType type, std::optional<RedOp> op, uint64_t seed, uint64_t index, std::span<uint64_t> codes);

}  // namespace tutti::bench
