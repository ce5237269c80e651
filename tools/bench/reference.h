// What a reduction must give, worked out one element at a time in higher precision; shares no arithmetic with the library.
//
// Pure functions; any thread.
// 1. Integers: exact, modulo 2^width. avg divides the wrapped sum once, truncating towards zero.
// 2. Floats: exact, hence compared bit for bit, for inputs of draw.h (their sums and products need no rounding in any order).
// 3. The one exception is avg of a number of ranks that is not a small power of two, where 1/n cannot be exact. Contributions
//    c are then rounded as the numerics contract says, and any order of adding n of them, rounding after each step, stays within
//    ((1+u)^(n-1) - 1) * sum|c| + (n-1) * q/2   of their true sum, u half a unit of the last place, q the smallest number.
#pragma once

#include <cstdint>
#include <span>

#include "bench/options.h"
#include "core/types.h"

namespace tutti::bench {

struct Expected {
  uint64_t code = 0;      ///< the element, low bytes first
  double tolerance = 0;   ///< how far a result may be from `value`; 0: every bit must agree with `code`
  double value = 0;       ///< meaningful with a tolerance
};

/// `codes[r]` is rank r's element, `scalars[r]` its factor (MulSum only).
Expected reduceReference(DataType type, RedOp op, std::span<const uint64_t> codes, std::span<const uint64_t> scalars);

/// Whether avg over that many ranks is exact for inputs of draw.h.
bool isExactAverage(size_t ranks);

}  // namespace tutti::bench
