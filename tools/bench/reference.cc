#include "bench/reference.h"

#include <bit>
#include <cmath>

#include "bench/float_format.h"

namespace tutti::bench {
namespace {

constexpr size_t kMostExactRanks = 64;

bool isSigned(DataType type) { return type == DataType::I8 || type == DataType::I32 || type == DataType::I64; }

int64_t signExtend(DataType type, uint64_t code) {
  const auto shift = static_cast<int>(64 - 8 * sizeOf(type));
  return static_cast<int64_t>(code << shift) >> shift;
}

bool isIntegerBefore(DataType type, uint64_t a, uint64_t b) {
  return isSigned(type) ? signExtend(type, a) < signExtend(type, b) : a < b;
}

uint64_t divideInteger(DataType type, uint64_t sum, size_t ranks) {
  if (!isSigned(type)) return sum / ranks;
  return static_cast<uint64_t>(signExtend(type, sum) / static_cast<int64_t>(ranks));
}

uint64_t reduceIntegers(DataType type, RedOp op, std::span<const uint64_t> codes, std::span<const uint64_t> scalars) {
  const uint64_t mask = maskOf(type);
  uint64_t result = op == RedOp::MulSum ? codes[0] * scalars[0] : codes[0];
  for (size_t r = 1; r < codes.size(); ++r) {
    switch (op) {
      case RedOp::Sum:
      case RedOp::Avg: result += codes[r]; break;
      case RedOp::Prod: result *= codes[r]; break;
      case RedOp::Max: result = isIntegerBefore(type, result, codes[r]) ? codes[r] : result; break;
      case RedOp::Min: result = isIntegerBefore(type, codes[r], result) ? codes[r] : result; break;
      case RedOp::MulSum: result += codes[r] * scalars[r]; break;
    }
    result &= mask;
  }
  if (op == RedOp::Avg) result = divideInteger(type, result, codes.size());
  return result & mask;
}

/// Codes of finite floats in the order of their values, -0 before +0.
bool isFloatBefore(const FloatFormat& format, uint64_t a, uint64_t b) {
  const double x = decode(format, a);
  const double y = decode(format, b);
  return x < y || (x == y && std::signbit(x) && !std::signbit(y));
}

uint64_t pickFloat(const FloatFormat& format, RedOp op, std::span<const uint64_t> codes) {
  uint64_t best = codes[0];
  for (const uint64_t code : codes) {
    const bool isBetter = op == RedOp::Max ? isFloatBefore(format, best, code) : isFloatBefore(format, code, best);
    if (isBetter) best = code;
  }
  return best;
}

Expected averageFloats(const FloatFormat& format, std::span<const uint64_t> codes) {
  const auto ranks = static_cast<double>(codes.size());
  const double factor = roundTo(format, 1 / ranks);
  long double sum = 0;
  double magnitudes = 0;
  for (const uint64_t code : codes) {
    // A double's product is rounded by the multiplication itself; narrower ones are exact in double before roundTo.
    const double contribution = roundTo(format, decode(format, code) * factor);
    sum += contribution;
    magnitudes += std::fabs(contribution);
  }
  Expected expected;
  expected.value = static_cast<double>(sum);
  expected.code = encode(format, expected.value);
  if (isExactAverage(codes.size())) return expected;
  const double halfUnit = std::ldexp(1.0, -format.precision());
  expected.tolerance = std::expm1((ranks - 1) * std::log1p(halfUnit)) * magnitudes + (ranks - 1) * format.quantum() / 2;
  return expected;
}

uint64_t accumulateFloats(const FloatFormat& format, RedOp op, std::span<const uint64_t> codes,
                          std::span<const uint64_t> scalars) {
  // Starts from the first contribution, not from zero: a sum of nothing but -0 is -0.
  long double result = 0;
  for (size_t r = 0; r < codes.size(); ++r) {
    long double x = decode(format, codes[r]);
    if (op == RedOp::MulSum) x *= decode(format, scalars[r]);
    if (r == 0) {
      result = x;
    } else if (op == RedOp::Prod) {
      result *= x;
    } else {
      result += x;
    }
  }
  return encode(format, static_cast<double>(result));
}

}  // namespace

bool isExactAverage(size_t ranks) { return std::has_single_bit(ranks) && ranks <= kMostExactRanks; }

Expected reduceReference(DataType type, RedOp op, std::span<const uint64_t> codes, std::span<const uint64_t> scalars) {
  Expected expected;
  if (isInteger(type)) {
    expected.code = reduceIntegers(type, op, codes, scalars);
    return expected;
  }
  const FloatFormat& format = formatOf(type);
  switch (op) {
    case RedOp::Max:
    case RedOp::Min: expected.code = pickFloat(format, op, codes); break;
    case RedOp::Avg: return averageFloats(format, codes);
    case RedOp::Sum:
    case RedOp::Prod:
    case RedOp::MulSum: expected.code = accumulateFloats(format, op, codes, scalars); break;
  }
  return expected;
}

}  // namespace tutti::bench
