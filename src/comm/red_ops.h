// The reduction operators that a caller made for one communicator, and what every operator means for a type.
//
// Owner: the communicator; used by the thread that uses it.
// 1. Handles are scattered by a random offset of each communicator, so that a handle used on another one is refused.
// 2. A destroyed operator's handle is not given out again before 2^30 others have been.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "core/status.h"
#include "core/types.h"

namespace tutti::comm {

/// An operator, applied to a type: what runs, and where the factor comes from.
struct ResolvedOp {
  ReduceOp op = ReduceOp::Sum;
  Scaling scaling;                      ///< hasFactor and divisor belong to the plan; the factor to the call
  const void* factorSource = nullptr;   ///< read when the call runs, if not null
  uint8_t code = 0;                     ///< 0 to 4 as in ncclRedOp_t, 5 for a pre-multiplied sum
};

class RedOps {
 public:
  explicit RedOps(uint32_t salt) : salt_(salt & kMask) {}

  /// A sum whose contributions are first multiplied by `scalar`, one element of `type`. `onDevice`: read when a call runs, and
  /// valid until then; otherwise copied now.
  int32_t createPreMulSum(const void* scalar, DataType type, bool onDevice);
  /// InvalidArgument for built-in, unknown and destroyed operators.
  Status destroy(int32_t handle);
  /// What `handle`, an ncclRedOp_t, does with `type` among `ranks`. InvalidArgument with the reason when it cannot be used.
  Result<ResolvedOp> resolve(int32_t handle, DataType type, int32_t ranks) const;
  /// Whether it means the same for ever.
  static bool isBuiltIn(int32_t handle) { return handle >= 0 && handle < 5; }

 private:
  struct PreMulSum {
    DataType type{};
    uint64_t factor = 0;
    const void* source = nullptr;
  };
  static constexpr uint32_t kMask = 0x3fffffff;
  static constexpr uint32_t kHandleBit = 0x40000000;

  /// What a handle of this communicator stands for in live_; anything above kMask for other values.
  uint32_t idOf(int32_t handle) const;

  uint32_t salt_;
  uint32_t nextId_ = 0;  // wraps after 2^30 operators
  std::unordered_map<uint32_t, PreMulSum> live_;
};

}  // namespace tutti::comm
