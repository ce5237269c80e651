// A call in 64 bits, sent with every message, so that ranks that made different calls notice at the first contact.
// Plain value; pure functions. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "core/ids.h"
#include "core/status.h"
#include "core/types.h"

namespace tutti::exec::host {

/// The call as its rank made it. `opCode`: 0 … 4 as in ncclRedOp_t, 5 for a pre-multiplied sum.
struct Call {
  Collective collective = Collective::AllReduce;
  DataType type = DataType::I8;
  uint8_t opCode = 0;
  int32_t root = 0;
  uint64_t count = 0;
  uint64_t sequence = 0;  ///< collectives of this communicator so far; messages of pairs do not count
};

/// What takes a number among the collectives of a communicator, or the place of one, without being one: the making of a child.
inline constexpr auto kSplitCall = static_cast<Collective>(kNumCollectives);
inline constexpr auto kShrinkCall = static_cast<Collective>(kNumCollectives + 1);

/// Keeps the collective, type, operation, the low 12 bits of the root, 16 of the sequence number and 24 of the count. A message
/// of a pair keeps the collective and the low 60 bits of its size in bytes, whatever its type.
uint64_t packSignature(const Call& call);

/// The call in words: "AllReduce #7 of 1024 float, sum". Only as exact as the bits allow.
std::string describeSignature(uint64_t signature);

/// The error of two ranks that made different calls; quotes both.
Status mismatch(Rank rank, uint64_t own, Rank peer, uint64_t theirs);

}  // namespace tutti::exec::host
