#include "bench/draw.h"

#include <algorithm>
#include <cmath>

#include "bench/float_format.h"

namespace tutti::bench {
namespace {

constexpr uint64_t kScalarSeed = 0x7ca1e;
constexpr int kMostUnitExponent = 2;
constexpr uint64_t kProductFactors = 4;

/// The factor of a float MulSum: ±1/2, ±1 or ±2.
double floatScalar(int rank) {
  const uint64_t bits = mixBits(kScalarSeed, 0, static_cast<uint64_t>(rank));
  const double magnitude = std::ldexp(1.0, static_cast<int>(bits % 3) - 1);
  return bits >> 32 & 1 ? -magnitude : magnitude;
}

void drawSummands(const FloatFormat& format, bool isScaled, uint64_t seed, uint64_t index, std::span<uint64_t> codes) {
  const uint64_t ranks = codes.size();
  const uint64_t most = uint64_t{1} << format.precision();
  const uint64_t largest = std::max<uint64_t>(1, most / ranks);
  const uint64_t shared = mixBits(seed, index, ~uint64_t{0});
  const int unit = static_cast<int>(shared % (2 * kMostUnitExponent + 1)) - kMostUnitExponent;
  for (uint64_t r = 0; r < ranks; ++r) {
    const uint64_t bits = mixBits(seed, index, r);
    const bool takesPart = ranks <= most || (r + (shared >> 8)) % ranks < most;
    const uint64_t units = takesPart ? (bits >> 1) % (largest + 1) : 0;
    double value = std::ldexp(static_cast<double>(units), unit);
    if (bits & 1 && units != 0) value = -value;
    if (isScaled && units != 0) value /= floatScalar(static_cast<int>(r));
    codes[r] = encode(format, value);
  }
}

void drawFactors(const FloatFormat& format, uint64_t seed, uint64_t index, std::span<uint64_t> codes) {
  const uint64_t ranks = codes.size();
  const uint64_t shared = mixBits(seed, index, ~uint64_t{0});
  for (uint64_t r = 0; r < ranks; ++r) {
    const uint64_t bits = mixBits(seed, index, r);
    const uint64_t place = (r + shared % ranks) % ranks;
    double value = 1;
    if (place == 0) {
      const auto mantissa = static_cast<double>(bits >> 16 & ((uint64_t{1} << std::min(format.mantissaBits, 48)) - 1));
      value += std::ldexp(mantissa, -std::min(format.mantissaBits, 48));
    } else if (place <= kProductFactors) {
      value = std::ldexp(1.0, static_cast<int>(bits >> 8 & 1) * 2 - 1);
    }
    codes[r] = encode(format, bits & 1 ? -value : value);
  }
}

void drawFinite(DataType type, const FloatFormat& format, uint64_t seed, uint64_t index, std::span<uint64_t> codes) {
  const uint64_t topExponentBit = uint64_t{1} << (format.exponentBits + format.mantissaBits - 1);
  for (uint64_t r = 0; r < codes.size(); ++r) {
    uint64_t code = mixBits(seed, index, r) & maskOf(type);
    if (isSpecial(format, code)) code &= ~topExponentBit;
    codes[r] = code;
  }
}

}  // namespace

uint64_t mixBits(uint64_t seed, uint64_t a, uint64_t b) {
  uint64_t x = seed;
  for (const uint64_t word : {a, b}) {
    x = (x ^ word) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 29)) * 0xd6e8feb86659fd93u;
    x ^= x >> 32;
  }
  return x * 0xd6e8feb86659fd93u ^ (x >> 31);
}

uint64_t drawScalar(DataType type, int rank) {
  if (!isInteger(type)) return encode(formatOf(type), floatScalar(rank));
  return (mixBits(kScalarSeed, 0, static_cast<uint64_t>(rank)) | 1) & maskOf(type);
}

void drawElement(DataType type, std::optional<RedOp> op, uint64_t seed, uint64_t index, std::span<uint64_t> codes) {
  if (!op || isInteger(type)) {
    for (uint64_t r = 0; r < codes.size(); ++r) codes[r] = mixBits(seed, index, r) & maskOf(type);
    return;
  }
  const FloatFormat& format = formatOf(type);
  switch (*op) {
    case RedOp::Sum:
    case RedOp::Avg: drawSummands(format, false, seed, index, codes); break;
    case RedOp::MulSum: drawSummands(format, true, seed, index, codes); break;
    case RedOp::Prod: drawFactors(format, seed, index, codes); break;
    case RedOp::Max:
    case RedOp::Min: drawFinite(type, format, seed, index, codes); break;
  }
}

}  // namespace tutti::bench
