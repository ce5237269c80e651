// A call of one rank, exactly as it was made: what ranks compare, and what reports quote.
// Plain value. Any thread.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/ids.h"
#include "core/types.h"

namespace tutti {

/// Operation of a call whose contributions each rank scales by a number of its own.
inline constexpr uint8_t kPreMulSumCode = 5;

/// `opCode`: 0 … 4 as in ncclRedOp_t, or kPreMulSumCode.
struct Call {
  Collective collective = Collective::AllReduce;
  DataType type = DataType::I8;
  uint8_t opCode = 0;
  int32_t root = 0;    ///< of a message: the peer
  uint64_t count = 0;  ///< elements of `type`
  /// Collectives of this communicator before it; of a message: those between the two ranks in its direction before it.
  uint64_t sequence = 0;
  bool receives = false;  ///< of a message: this rank is the receiver

  bool isMessage() const { return collective == Collective::SendRecv; }
  /// Equal but for the sequence number.
  bool isLike(const Call& other) const {
    return collective == other.collective && type == other.type && opCode == other.opCode && root == other.root && count == other.count &&
           receives == other.receives;
  }
  friend bool operator==(const Call&, const Call&) = default;
};
static_assert(std::is_trivially_copyable_v<Call>);

struct RankCall {
  Rank rank;
  Call call;
};

}  // namespace tutti
