// Encoding and decoding of every element type by arithmetic on doubles: slow, obvious, and independent of the library's own
// conversions, because results are judged by it.
//
// Pure functions; any thread. Expects the default rounding mode, to nearest even.
#pragma once

#include <cstdint>

#include "core/types.h"

namespace tutti::bench {

/// A binary floating-point type of up to 64 bits.
struct FloatFormat {
  int exponentBits;
  int mantissaBits;   ///< stored ones; one more is implied
  double largest;     ///< largest finite value
  bool saturates;     ///< overflow becomes the largest finite value instead of infinity
  bool hasInfinity;   ///< the topmost exponent stands for infinity and NaN; otherwise only the topmost code is a NaN

  int bias() const { return (1 << (exponentBits - 1)) - 1; }
  /// Digits of a number, the implied one included: integers up to 2^precision() are exact.
  int precision() const { return mantissaBits + 1; }
  /// Distance of the smallest two numbers.
  double quantum() const;
};

/// The bits of an element's code.
inline uint64_t maskOf(DataType type) { return ~uint64_t{0} >> (64 - 8 * sizeOf(type)); }

/// `type` is not an integer.
const FloatFormat& formatOf(DataType type);

/// Nearest code to `value` (ties to even). Finite values only.
uint64_t encode(const FloatFormat& format, double value);

/// The value of a finite code, exact.
double decode(const FloatFormat& format, uint64_t code);

/// Whether `code` is infinite or a NaN.
bool isSpecial(const FloatFormat& format, uint64_t code);

/// `value` rounded to the type: decode(encode(value)).
double roundTo(const FloatFormat& format, double value);

}  // namespace tutti::bench
