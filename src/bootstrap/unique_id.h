// The 128 bytes of a unique id: where the root of a communicator listens and the secret that its ranks share.
//
// A plain value; no state; any thread.
// 1. Whoever knows the bytes can take part: they are as secret as the job. Nothing of them but the hash is ever logged.
// 2. A fixed id stands for NCCL_COMM_ID: every process makes the same, and it is good for one communicator after the other.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "bootstrap/address.h"
#include "core/status.h"

namespace tutti::bootstrap {

/// The content of an ncclUniqueId.
using UniqueIdBytes = std::array<unsigned char, 128>;

/// What authenticates: 32 random bytes.
using Secret = std::array<uint8_t, 32>;

struct UniqueId {
  uint64_t hash = 0;   ///< shown in logs as commId
  uint64_t maker = 0;  ///< token of the process that made it; 0 in a fixed id
  int32_t pid = 0;     ///< its number there; 0 in a fixed id
  bool isFixed = false;
  Secret secret{};
  std::vector<Address> addresses;  ///< of the root, the preferred one first

  /// As many addresses as fit, in order: nine of IPv4 or three of IPv6 always do.
  UniqueIdBytes encode() const;
  size_t fitting() const;  ///< how many addresses those are
  /// InvalidArgument when the bytes are no id of this library.
  static Result<UniqueId> decode(const UniqueIdBytes& bytes);
};

/// With which of `ids` roots a rank registers: the first `ranks % ids` own one rank more than the others, all in one piece.
struct Block {
  int32_t index = 0;
  int32_t first = 0;
  int32_t count = 0;
};
Block blockOf(int32_t rank, int32_t ranks, int32_t ids);
Block blockAt(int32_t index, int32_t ranks, int32_t ids);

}  // namespace tutti::bootstrap
