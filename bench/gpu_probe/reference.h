// What a collective must give: the order that the algorithm states, evaluated with the functions of exec/host, which equal core/element.h.
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "algo/layout.h"
#include "core/types.h"
#include "exec/record/catalog.h"

namespace tutti::probe {

using Bytes = std::vector<std::byte>;

/// One collective of all ranks. `factors` are the ranks' pre-multipliers (or 1/n), one element each.
struct Question {
  int algorithm = 0;  ///< place in algo/list.h
  Reduction reduction;
  uint64_t count = 0;
  int32_t root = 0;
  std::vector<uint64_t> factors;
};

/// Elements of a rank's input and output; 0 where the collective gives it none.
uint64_t inputElems(const Question& q, int32_t ranks, int32_t rank);
uint64_t outputElems(const Question& q, int32_t ranks, int32_t rank);

/// The output of every rank; `views` are those of all ranks.
std::vector<Bytes> expectedOutputs(const Question& q, const std::vector<Bytes>& inputs, const std::vector<algo::LayoutView>& views);

/// `elems` elements: ordinary values, and one in 16 of any bits at all, so that infinities, NaNs with payloads, zeros and subnormals come
/// up.
Bytes makeValues(DataType type, uint64_t elems, uint64_t seed);

/// 1/n rounded to the type, low bytes first.
uint64_t inverseOf(DataType type, int32_t n);

}  // namespace tutti::probe
