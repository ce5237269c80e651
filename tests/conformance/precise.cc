// checkPrecise() of reference.h. Shares no arithmetic with the library: decodes by exponent and mantissa, computes in long double.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "conformance/reference.h"
#include "core/format.h"

namespace tutti::conformance {
namespace {

/// Elements looked at in a result: the bitwise comparison sees all of them.
constexpr uint64_t kChecked = 300;

/// A binary floating-point format by its numbers.
struct Format {
  int exponentBits;
  int mantissaBits;
};

Format formatOf(DataType type) {
  switch (type) {
    case DataType::F16: return {5, 10};
    case DataType::BF16: return {8, 7};
    case DataType::F8E4M3: return {4, 3};
    case DataType::F8E5M2: return {5, 2};
    case DataType::F32: return {8, 23};
    default: return {11, 52};
  }
}

/// The value of a finite code.
long double decode(DataType type, uint64_t bits) {
  const Format f = formatOf(type);
  const uint64_t mantissa = bits & ((uint64_t{1} << f.mantissaBits) - 1);
  const int exponent = static_cast<int>(bits >> f.mantissaBits & ((uint64_t{1} << f.exponentBits) - 1));
  const int bias = (1 << (f.exponentBits - 1)) - 1;
  const bool negative = (bits >> (f.mantissaBits + f.exponentBits) & 1) != 0;
  long double magnitude = std::ldexp(static_cast<long double>(mantissa), 1 - bias - f.mantissaBits);
  if (exponent > 0)
    magnitude = std::ldexp(static_cast<long double>(mantissa | uint64_t{1} << f.mantissaBits), exponent - bias - f.mantissaBits);
  return negative ? -magnitude : magnitude;
}

uint64_t readBits(const Contents& bytes, uint64_t index, size_t size) {
  uint64_t bits = 0;
  std::memcpy(&bits, bytes.data() + index * size, size);
  return bits;
}

bool isSigned(DataType type) { return type == DataType::I8 || type == DataType::I32 || type == DataType::I64; }

int64_t signExtend(uint64_t bits, size_t size) {
  const int shift = static_cast<int>(64 - 8 * size);
  return static_cast<int64_t>(bits << shift) >> shift;
}

uint64_t truncated(uint64_t bits, size_t size) { return size == 8 ? bits : bits & ((uint64_t{1} << 8 * size) - 1); }

uint64_t integerResult(const Case& c, const std::vector<uint64_t>& xs) {
  const size_t size = sizeOf(c.type);
  uint64_t acc = 0;
  if (c.operation == 2 || c.operation == 3) {  // max, min
    const auto less = [&](uint64_t a, uint64_t b) { return isSigned(c.type) ? signExtend(a, size) < signExtend(b, size) : a < b; };
    return c.operation == 2 ? *std::max_element(xs.begin(), xs.end(), less) : *std::min_element(xs.begin(), xs.end(), less);
  }
  if (c.operation == 1) acc = 1;
  for (size_t r = 0; r < xs.size(); ++r) {
    const uint64_t x = c.operation >= kPreMulHost ? xs[r] * scalarOf(c, static_cast<int>(r)) : xs[r];
    acc = c.operation == 1 ? acc * x : acc + x;
  }
  acc = truncated(acc, size);
  if (c.operation != kAvg) return acc;
  if (!isSigned(c.type)) return acc / static_cast<uint64_t>(c.ranks);
  return truncated(static_cast<uint64_t>(signExtend(acc, size) / c.ranks), size);
}

struct Bounded {
  long double value;
  long double tolerance;
};

/// (1 + u)^k - 1
long double growthOf(long double roundoff, int k) {
  long double factor = 1;
  for (int i = 0; i < k; ++i) factor *= 1 + roundoff;
  return factor - 1;
}

Bounded floatResult(const Case& c, const std::vector<uint64_t>& xs) {
  const Format f = formatOf(c.type);
  const long double roundoff = std::ldexp(1.0L, -f.mantissaBits - 1);
  const long double smallest = std::ldexp(1.0L, 2 - (1 << (f.exponentBits - 1)) - f.mantissaBits);
  const auto n = static_cast<int>(xs.size());
  std::vector<long double> values;
  for (const uint64_t x : xs) values.push_back(decode(c.type, x));
  if (c.operation == 2) return {*std::max_element(values.begin(), values.end()), 0};
  if (c.operation == 3) return {*std::min_element(values.begin(), values.end()), 0};
  const long double growth = growthOf(roundoff, n + 2);
  if (c.operation == 1) {
    long double product = 1;
    for (const long double v : values) product *= v;
    return {product, std::fabs(product) * growth + 2 * n * smallest * (growthOf(0.25L, n) + 1)};
  }
  long double sum = 0;
  long double magnitude = 0;
  for (int r = 0; r < n; ++r) {
    long double v = values[static_cast<size_t>(r)];
    if (c.operation == kAvg) v /= n;
    if (c.operation >= kPreMulHost) v *= decode(c.type, scalarOf(c, r));
    sum += v;
    magnitude += std::fabs(v);
  }
  // 1/n of a type in which it is subnormal, and every scaled contribution, may be off by a subnormal's half.
  return {sum, magnitude * growth + 2 * n * smallest * (c.operation == kAvg ? 3 : 1)};
}

}  // namespace

std::string checkPrecise(const Case& c, const std::vector<Contents>& inputs, int rank, const Contents& output) {
  const size_t size = sizeOf(c.type);
  const uint64_t begin = c.kind == Kind::ReduceScatter ? static_cast<uint64_t>(rank) * c.count : 0;
  std::vector<uint64_t> xs(inputs.size());
  const uint64_t count = output.size() / size;
  const uint64_t stride = count / kChecked + 1;
  for (uint64_t i = c.seed % stride; i < count; i += stride) {
    for (size_t r = 0; r < inputs.size(); ++r) xs[r] = readBits(inputs[r], begin + i, size);
    const uint64_t got = readBits(output, i, size);
    if (isInteger(c.type)) {
      const uint64_t wanted = integerResult(c, xs);
      if (got != wanted) return format("element {} is {:#x}, exactly it is {:#x}", i, got, wanted);
      continue;
    }
    const Bounded wanted = floatResult(c, xs);
    const long double value = decode(c.type, got);
    if (!(std::fabs(value - wanted.value) <= wanted.tolerance))
      return format("element {} is {}, precisely {} within {}", i, static_cast<double>(value), static_cast<double>(wanted.value),
                    static_cast<double>(wanted.tolerance));
  }
  return {};
}

}  // namespace tutti::conformance
