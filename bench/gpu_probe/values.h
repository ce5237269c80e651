// Input elements as a function of seed, rank and index, so that host and device make the same ones without copying them.
#pragma once

#include <cstdint>

#include "core/macros.h"
#include "core/types.h"

namespace tutti::probe {

TUTTI_HD uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// The bits of an element: random sign and mantissa, exponents over a range in which sums round often; one in 64 has any bits at all,
/// so that infinities, NaNs with payloads, zeros and subnormals come up too.
TUTTI_HD uint32_t inputBits(DataType type, uint64_t seed, int32_t rank, uint64_t index) {
  const uint64_t h = mix(mix(seed + static_cast<uint64_t>(rank)) ^ index);
  const auto sign = static_cast<uint32_t>(h & 1);
  const auto spread = static_cast<uint32_t>(h >> 1 & 7);
  const auto mantissa = static_cast<uint32_t>(h >> 32);
  const bool anything = (h >> 4 & 63) == 0;
  const uint32_t edge = (h >> 10 & 3) == 0 ? 0 : (h >> 10 & 3) == 1 ? 255 : mantissa >> 24;
  if (type == DataType::F32) return sign << 31 | (anything ? edge : 123 + spread) << 23 | mantissa >> 9;
  if (type == DataType::BF16) return sign << 15 | (anything ? edge : 123 + spread) << 7 | mantissa >> 25;
  return sign << 15 | (anything ? edge & 31 : 11 + spread) << 10 | mantissa >> 22;
}

}  // namespace tutti::probe
