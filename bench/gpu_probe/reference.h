// What a collective must give, computed on the host from the order that the algorithm itself states.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "algo/layout.h"
#include "core/element.h"
#include "values.h"

namespace tutti::probe {

inline float widenBits(DataType type, uint32_t bits) {
  if (type == DataType::F32) return std::bit_cast<float>(bits);
  if (type == DataType::BF16) return widen<DataType::BF16>({static_cast<uint16_t>(bits)});
  return widen<DataType::F16>({static_cast<uint16_t>(bits)});
}
inline uint32_t narrowBits(DataType type, float value) {
  if (type == DataType::F32) return std::bit_cast<uint32_t>(narrow<DataType::F32>(value));
  if (type == DataType::BF16) return narrow<DataType::BF16>(value).bits;
  return narrow<DataType::F16>(value).bits;
}

/// Evaluates an algorithm's `order` for one element: every `add` accumulates in fp32 and rounds once.
struct ElementSum {
  DataType type;
  uint64_t seed;
  uint64_t index;

  float leaf(Rank rank) const { return widenBits(type, inputBits(type, seed, rank.value, index)); }
  template <class... More>
  float add(float first, More... more) const {
    ((first = reduce<ReduceOp::Sum>(first, more)), ...);
    return widenBits(type, narrowBits(type, first));
  }
  float addRanks(int32_t ranks) const {
    float sum = leaf(Rank(0));
    for (int32_t r = 1; r < ranks; ++r) sum = reduce<ReduceOp::Sum>(sum, leaf(Rank(r)));
    return widenBits(type, narrowBits(type, sum));
  }
};

/// Bits of element `index` of the all-reduced buffer; `chunkElems` is the geometry's.
template <class Algorithm>
uint32_t expectedBits(DataType type, uint64_t seed, uint64_t index, uint64_t chunkElems, const std::vector<algo::LayoutView>& views) {
  if (views.size() == 1) return inputBits(type, seed, 0, index);  // a lone contribution is moved, NaN payload and all
  ElementSum sum{type, seed, index};
  const auto chunk = static_cast<int32_t>(index / chunkElems);
  return narrowBits(type, Algorithm::order(sum, chunk, views.data()));
}

}  // namespace tutti::probe
