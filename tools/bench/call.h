// One call of a collective as the benchmark makes it: what, on which buffers, and how it is issued.
//
// Plain values and functions; a rank's own thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/buffer.h"
#include "bench/operation.h"
#include "bench/options.h"
#include "bench/team.h"
#include "core/types.h"
#include "nccl.h"

namespace tutti::bench {

/// The same for all ranks.
struct Call {
  const Operation* operation = nullptr;
  DataType type = DataType::F32;
  std::optional<RedOp> redOp;  ///< empty for moves
  int root = -1;               ///< -1 without a root
  uint64_t count = 0;
  int ranks = 1;
  bool isInPlace = false;

  uint64_t sendCount() const { return operation->sendCount(count, ranks); }
  uint64_t receiveCount() const { return operation->receiveCount(count, ranks); }
  /// nccl-tests' "size".
  uint64_t bytes() const { return operation->sizeCount(count, ranks) * sizeOf(type); }
};

/// "all_reduce float sum, 1 MiB, in place".
std::string describe(const Call& call);

/// Memory of one rank: large enough for every call of a run.
struct Memory {
  Buffer send;
  Buffer receive;
};

/// Where one rank's data lie for one call. In place, `send` and `receive` overlap as nccl.h says.
struct Placement {
  std::byte* send = nullptr;
  std::byte* receive = nullptr;
  bool sharesMemory = false;  ///< this rank's receive buffer is, or lies in, its send buffer, or the other way round
};

Placement place(const Call& call, int rank, const Memory& memory);

/// The library's number of a type.
ncclDataType_t ncclTypeOf(DataType type);

/// Makes reduction operators: created ones for MulSum, with this rank's factor.
Result<ncclRedOp_t> createOperator(Member& member, const Call& call);
Status destroyOperator(Member& member, const Call& call, ncclRedOp_t op);

/// Makes the call on the NULL stream, that is, complete on return.
Status issue(Member& member, const Call& call, const Placement& placement, ncclRedOp_t op);

/// This rank's memory traffic for the call, from tuttiExplain.
struct Traffic {
  uint64_t bytes = 0;      ///< read and written
  std::string algorithm;
  std::string simd;
};
Result<Traffic> explain(Member& member, const Call& call, ncclRedOp_t op);

}  // namespace tutti::bench
