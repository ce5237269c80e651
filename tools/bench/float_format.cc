#include "bench/float_format.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

namespace tutti::bench {
namespace {

constexpr FloatFormat kHalf = {5, 10, 65504, false, true};
constexpr FloatFormat kFloat = {8, 23, FLT_MAX, false, true};
constexpr FloatFormat kDouble = {11, 52, DBL_MAX, false, true};
constexpr FloatFormat kBfloat16 = {8, 7, 0x1.fep127, false, true};
constexpr FloatFormat kE4M3 = {4, 3, 448, true, false};
constexpr FloatFormat kE5M2 = {5, 2, 57344, true, true};

}  // namespace

double FloatFormat::quantum() const { return std::ldexp(1.0, 1 - bias() - mantissaBits); }

const FloatFormat& formatOf(DataType type) {
  switch (type) {
    case DataType::F16: return kHalf;
    case DataType::F32: return kFloat;
    case DataType::BF16: return kBfloat16;
    case DataType::F8E4M3: return kE4M3;
    case DataType::F8E5M2: return kE5M2;
    default: return kDouble;
  }
}

uint64_t encode(const FloatFormat& format, double value) {
  const uint64_t sign = std::signbit(value) ? uint64_t{1} << (format.exponentBits + format.mantissaBits) : 0;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  const int least = 1 - format.bias();
  const int exponent = std::max(std::ilogb(magnitude), least);
  // In units of the last place: the one rounding. A carry into the next exponent is absorbed by the sum below.
  double units = std::nearbyint(std::ldexp(magnitude, format.mantissaBits - exponent));
  if (std::ldexp(units, exponent - format.mantissaBits) > format.largest) {
    if (!format.saturates) return sign | ((uint64_t{1} << format.exponentBits) - 1) << format.mantissaBits;
    return encode(format, std::copysign(format.largest, value));
  }
  // Codes grow with their values, so the code is the offset of the exponent plus the units beyond the implied digit.
  const auto offset = static_cast<uint64_t>(exponent - least) << format.mantissaBits;
  return sign | (offset + static_cast<uint64_t>(units));
}

double decode(const FloatFormat& format, uint64_t code) {
  const uint64_t mantissa = code & ((uint64_t{1} << format.mantissaBits) - 1);
  const auto exponent = static_cast<int>(code >> format.mantissaBits & ((uint64_t{1} << format.exponentBits) - 1));
  const double implied = exponent == 0 ? 0 : std::ldexp(1.0, format.mantissaBits);
  const double magnitude =
      std::ldexp(implied + static_cast<double>(mantissa), std::max(exponent, 1) - format.bias() - format.mantissaBits);
  return code >> (format.exponentBits + format.mantissaBits) & 1 ? -magnitude : magnitude;
}

bool isSpecial(const FloatFormat& format, uint64_t code) {
  const uint64_t magnitude = code & ((uint64_t{1} << (format.exponentBits + format.mantissaBits)) - 1);
  const uint64_t top = ((uint64_t{1} << format.exponentBits) - 1) << format.mantissaBits;
  if (format.hasInfinity) return magnitude >= top;
  return magnitude == (top | ((uint64_t{1} << format.mantissaBits) - 1));
}

double roundTo(const FloatFormat& format, double value) { return decode(format, encode(format, value)); }

}  // namespace tutti::bench
