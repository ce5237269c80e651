// Which data loop reduces what: types that compute alike share one. Plain values, the same on host and device.
//
// A kernel holds one loop for each of kLoopTypes × kNumReduceOps and finds the one of a work by its number. Whatever is rare (a factor, a
// divisor, the sign of integers) is a run-time number of the loop and no loop of its own: docs/decisions/0014.
#pragma once

#include <cstdint>

#include "core/macros.h"
#include "core/types.h"

namespace tutti::exec::cuda {

/// The types and operations that have loops of their own. Signed integers use those of the unsigned ones, min is max of flipped values.
inline constexpr DataType kLoopTypes[] = {DataType::U8,  DataType::U32,  DataType::U64,    DataType::F16,   DataType::F32,
                                          DataType::F64, DataType::BF16, DataType::F8E4M3, DataType::F8E5M2};
inline constexpr ReduceOp kLoopOps[] = {ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max};
inline constexpr int kNumLoopTypes = sizeof(kLoopTypes) / sizeof(kLoopTypes[0]);
inline constexpr int kNumLoopOps = sizeof(kLoopOps) / sizeof(kLoopOps[0]);
inline constexpr int kNumLoops = kNumLoopTypes * kNumLoopOps;

TUTTI_HD constexpr bool isSignedInteger(DataType type) { return type == DataType::I8 || type == DataType::I32 || type == DataType::I64; }
TUTTI_HD constexpr DataType loopType(DataType type) {
  return isSignedInteger(type) ? static_cast<DataType>(static_cast<int>(type) + 1) : type;
}
static_assert(loopType(DataType::I8) == DataType::U8 && loopType(DataType::I32) == DataType::U32 &&
              loopType(DataType::I64) == DataType::U64);

TUTTI_HD constexpr int loopOf(DataType type, ReduceOp op) {
  const int t = static_cast<int>(loopType(type));
  const int place = t <= static_cast<int>(DataType::U64) ? t / 2 : t - 3;
  return place * kNumLoopOps + (op == ReduceOp::Min ? 2 : static_cast<int>(op));
}
static_assert(loopOf(DataType::U64, ReduceOp::Sum) == 2 * kNumLoopOps && loopOf(DataType::F16, ReduceOp::Sum) == 3 * kNumLoopOps &&
              loopOf(DataType::F8E5M2, ReduceOp::Min) == kNumLoops - 1);

/// What a work computes with, resolved once when a block begins it.
struct Numbers {
  uint64_t factor = 0;  ///< of every contribution, in the element type; only where a job says that a source is scaled
  uint64_t flip = 0;    ///< max and min: what is flipped of every widened value before it is compared, and of the result
  int32_t divisor = 1;  ///< of finished integers
  int32_t loop = 0;     ///< loopOf()
  uint32_t elementBytes = 1;
  bool isSigned = false;
  bool hasFactor = false;
};

/// Of an accumulator: the sign bit makes signed integers comparable as unsigned ones, and turns min of floats into max; all bits turn min
/// of unsigned integers into max.
TUTTI_HD constexpr uint64_t flipOf(DataType type, ReduceOp op) {
  const uint64_t sign = isInteger(type)         ? uint64_t{1} << (8 * sizeOf(type) - 1)
                        : type == DataType::F64 ? uint64_t{1} << 63
                                                : uint64_t{1} << 31;
  const bool isMin = op == ReduceOp::Min;
  if (!isMin && op != ReduceOp::Max) return 0;
  if (!isInteger(type)) return isMin ? sign : 0;
  return (isSignedInteger(type) ? sign : 0) ^ (isMin ? ~uint64_t{0} : 0);
}

/// All but a factor that lies in memory.
TUTTI_HD constexpr Numbers numbersOf(DataType type, ReduceOp op, const Scaling& scaling) {
  Numbers n;
  n.factor = scaling.hasFactor ? scaling.factor : 0;
  n.flip = flipOf(type, op);
  n.divisor = scaling.divisor;
  n.loop = loopOf(type, op);
  n.elementBytes = sizeOf(type);
  n.isSigned = isSignedInteger(type);
  n.hasFactor = scaling.hasFactor;
  return n;
}

}  // namespace tutti::exec::cuda
