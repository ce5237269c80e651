// What ranks send and what must come back: numbers drawn from (seed, rank, index), which every element type holds exactly, as codes looked
// up in tables. So one kernel fills and one compares all types, and neither shares arithmetic with a library.
//
// Plain values and pure functions, the same on host and device; the tables belong to a Device (device.h).
// 1. Sums of all ranks' draws are exact in the type: any order of reduction gives the same bits.
// 2. Data that arrives in the wrong place, or from another call (its seed differs), is wrong with a probability of 1 - 1/range an element.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/operation.h"
#include "bench/options.h"
#include "core/types.h"
#include "gpu/draws.h"

namespace tutti::bench::gpu {

/// The tables of one type and operator.
struct Codes {
  DataType type = DataType::F32;
  Combine combine = Combine::Sum;
  int ranks = 1;
  std::vector<uint64_t> inputs;   ///< by draw; as many as there are draws
  std::vector<uint64_t> results;  ///< by combined draws
};

/// `op` empty for moves, never MulSum. An average of floats needs a number of ranks that is a power of two.
Codes makeCodes(DataType type, std::optional<RedOp> op, int ranks);

Expectation expectationOf(const Operation& operation, uint64_t count, int rank, int ranks, int root);

}  // namespace tutti::bench::gpu
