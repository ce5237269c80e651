#include "comm/red_ops.h"

#include <cstring>

#include "core/call.h"
#include "core/element.h"

namespace tutti::comm {
namespace {

constexpr int32_t kBuiltIn = 5;  // ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg
constexpr int32_t kAvg = 4;

template <class Element>
uint64_t bitsOfElement(Element value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

/// 1/ranks, rounded to the element type.
uint64_t reciprocal(DataType type, int32_t ranks) {
  const float single = 1.0F / static_cast<float>(ranks);
  switch (type) {
    case DataType::F16: return bitsOfElement(toHalf(single));
    case DataType::BF16: return bitsOfElement(toBfloat16(single));
    case DataType::F8E4M3: return bitsOfElement(toFp8E4M3(single));
    case DataType::F8E5M2: return bitsOfElement(toFp8E5M2(single));
    case DataType::F64: return bitsOfElement(1.0 / ranks);
    default: return bitsOfElement(single);
  }
}

}  // namespace

int32_t RedOps::createPreMulSum(const void* scalar, DataType type, bool onDevice) {
  PreMulSum made;
  made.type = type;
  if (onDevice) {
    made.source = scalar;
  } else {
    std::memcpy(&made.factor, scalar, sizeOf(type));
  }
  while (live_.count(nextId_) != 0) nextId_ = (nextId_ + 1) & kMask;
  const uint32_t id = nextId_;
  nextId_ = (nextId_ + 1) & kMask;
  live_.emplace(id, made);
  return static_cast<int32_t>(kHandleBit | ((id + salt_) & kMask));
}

uint32_t RedOps::idOf(int32_t handle) const {
  const auto bits = static_cast<uint32_t>(handle);
  if (handle < 0 || (bits & kHandleBit) == 0) return UINT32_MAX;
  return ((bits & kMask) - salt_) & kMask;
}

Status RedOps::destroy(int32_t handle) {
  if (handle >= 0 && handle < kBuiltIn) return error(Code::InvalidArgument, "op {} is built in and cannot be destroyed", handle);
  if (live_.erase(idOf(handle)) == 0)
    return error(Code::InvalidArgument, "op {} was not created on this communicator, or has been destroyed", handle);
  return {};
}

Result<ResolvedOp> RedOps::resolve(int32_t handle, DataType type, int32_t ranks) const {
  ResolvedOp resolved;
  if (handle >= 0 && handle < kBuiltIn) {
    resolved.code = static_cast<uint8_t>(handle);
    if (handle != kAvg) {
      resolved.op = static_cast<ReduceOp>(handle);
    } else if (isInteger(type)) {
      resolved.scaling.divisor = ranks;
    } else if (ranks > 1) {
      resolved.scaling.hasFactor = true;
      resolved.scaling.factor = reciprocal(type, ranks);
    }
    return resolved;
  }
  const auto found = live_.find(idOf(handle));
  if (found == live_.end())
    return fail(Code::InvalidArgument,
                "op {} is neither built in (0 to 4: ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg) nor a live operator created on this "
                "communicator",
                handle);
  const PreMulSum& made = found->second;
  if (made.type != type)
    return fail(Code::InvalidArgument, "op {} was created for datatype {}, but the call is for {}", handle, name(made.type), name(type));
  resolved.code = kPreMulSumCode;
  resolved.scaling.hasFactor = true;
  resolved.scaling.factor = made.factor;
  resolved.factorSource = made.source;
  return resolved;
}

}  // namespace tutti::comm
