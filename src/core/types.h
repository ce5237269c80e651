// Element types, reductions and collectives, as every layer names them. Values equal those of nccl.h (api/ asserts it).
// Plain enums, the same on host and device.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/macros.h"

namespace tutti {

enum class DataType : uint8_t { I8, U8, I32, U32, I64, U64, F16, F32, F64, BF16, F8E4M3, F8E5M2 };
inline constexpr int kNumDataTypes = 12;

/// What is computed between contributions. Avg and pre-multiplied sums are Sum with a Scaling.
enum class ReduceOp : uint8_t { Sum, Prod, Max, Min };
inline constexpr int kNumReduceOps = 4;

enum class Collective : uint8_t {
  Broadcast, Reduce, AllGather, ReduceScatter, AllReduce, SendRecv, AllToAll, Scatter, Gather,
};
inline constexpr int kNumCollectives = 9;

TUTTI_HD constexpr uint32_t sizeOf(DataType type) {
  switch (type) {
    case DataType::I8: case DataType::U8: case DataType::F8E4M3: case DataType::F8E5M2: return 1;
    case DataType::F16: case DataType::BF16: return 2;
    case DataType::I32: case DataType::U32: case DataType::F32: return 4;
    case DataType::I64: case DataType::U64: case DataType::F64: return 8;
  }
  return 0;
}

/// Whether contributions are combined, so that an operator matters.
TUTTI_HD constexpr bool reduces(Collective collective) {
  return collective == Collective::AllReduce || collective == Collective::Reduce || collective == Collective::ReduceScatter;
}

/// Whether one rank plays a part of its own. (A message has a peer, which is another thing.)
TUTTI_HD constexpr bool hasRoot(Collective collective) {
  return collective == Collective::Broadcast || collective == Collective::Reduce || collective == Collective::Gather ||
         collective == Collective::Scatter;
}

TUTTI_HD constexpr bool isInteger(DataType type) { return type <= DataType::U64; }

/// "float", "bfloat16" … as `tutti bench -d` takes them.
std::string_view name(DataType type);
std::string_view name(ReduceOp op);
std::string_view name(Collective collective);

/// How contributions and results are scaled around a reduction.
/// `factor` holds one element in its own type, low bytes first: every contribution is multiplied by it and rounded to the
/// element type before it is reduced (pre-multiplied sum, and Avg of floating-point types with 1/n rounded to the type).
/// `divisor` divides the finished, wrapped integer sum once, truncating towards zero (Avg of integers); 1 means none.
struct Scaling {
  uint64_t factor = 0;
  bool hasFactor = false;
  int32_t divisor = 1;

  friend bool operator==(const Scaling&, const Scaling&) = default;
};

/// The whole of "what to compute" for one collective call.
struct Reduction {
  DataType type = DataType::F32;
  ReduceOp op = ReduceOp::Sum;
  Scaling scaling;
};

}  // namespace tutti
