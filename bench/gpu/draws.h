// The draws behind inputs and results (values.h), and the lookup of their codes, the same on host and device. Light, as nvcc reads it.
//
// Plain values and pure functions; the tables belong to a Device (device.h).
#pragma once

#include <cstdint>

#include "core/macros.h"

namespace tutti::bench::gpu {

enum class Combine : uint8_t { Sum, Max, Min };

/// The tables where a kernel, or this thread, can read them.
struct CodeView {
  const uint64_t* inputs;
  const uint64_t* results;
  uint32_t range;
  uint32_t elementBytes;
  int32_t ranks;
  Combine combine;
};

/// Where the elements of one rank's result come from.
struct Expectation {
  bool isReduced = false;
  bool sourceIsBlock = false;  ///< block b is rank b's; otherwise everything is `source`'s
  int32_t source = 0;
  uint64_t base = 0;           ///< index, at its source, of each block's first element
  uint64_t blockCount = 1;     ///< elements of a block
};

TUTTI_HD uint32_t drawOf(uint64_t seed, int32_t rank, uint64_t index, uint32_t range) {
  uint64_t x = seed + 0x9e3779b97f4a7c15u * static_cast<uint64_t>(rank + 1);
  x = (x ^ index) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 29)) * 0x94d049bb133111ebu;
  return static_cast<uint32_t>(((x >> 32) * range) >> 32);
}

TUTTI_HD uint64_t inputCode(const CodeView& codes, uint64_t seed, int32_t rank, uint64_t index) {
  return codes.inputs[drawOf(seed, rank, index, codes.range)];
}

TUTTI_HD uint64_t expectedCode(const CodeView& codes, uint64_t seed, const Expectation& expectation, uint64_t element) {
  const uint64_t block = element / expectation.blockCount;
  const uint64_t index = expectation.base + (element - block * expectation.blockCount);
  if (!expectation.isReduced)
    return inputCode(codes, seed, expectation.sourceIsBlock ? static_cast<int32_t>(block) : expectation.source, index);
  uint32_t combined = drawOf(seed, 0, index, codes.range);
  for (int32_t rank = 1; rank < codes.ranks; ++rank) {
    const uint32_t draw = drawOf(seed, rank, index, codes.range);
    switch (codes.combine) {
      case Combine::Sum: combined += draw; break;
      case Combine::Max: combined = draw > combined ? draw : combined; break;
      case Combine::Min: combined = draw < combined ? draw : combined; break;
    }
  }
  return codes.results[combined];
}

}  // namespace tutti::bench::gpu
