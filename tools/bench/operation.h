// The operations that `tutti bench` measures, and how each lays out its buffers, as a table.
//
// Pure values and functions; any thread.
// 1. `count` is what the collective call itself takes; "blocks" are pieces of `count` elements.
// 2. The in-place form has one buffer, the larger of the two; the smaller one is a block of it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/status.h"

namespace tutti::bench {

enum class Op : uint8_t { AllReduce, AllGather, ReduceScatter, Broadcast, Reduce, AllToAll, Gather, Scatter, SendRecv };
inline constexpr int kNumOps = 9;

/// Who has a buffer: every rank, or the root alone.
enum class Owner : uint8_t { Everyone, Root };

struct Operation {
  Op op;
  std::string_view name;
  bool isReduction;
  bool isRooted;
  bool hasInPlace;
  Owner sender;           ///< whose send buffer is read
  Owner receiver;         ///< whose receive buffer is written
  bool sendsBlocks;       ///< the send buffer holds one block a rank, otherwise one block
  bool receivesBlocks;    ///< the same of the receive buffer

  uint64_t sendCount(uint64_t count, int ranks) const { return sendsBlocks ? count * static_cast<uint64_t>(ranks) : count; }
  uint64_t receiveCount(uint64_t count, int ranks) const { return receivesBlocks ? count * static_cast<uint64_t>(ranks) : count; }
  /// Elements of the larger buffer: times the element size, what nccl-tests prints as "size".
  uint64_t sizeCount(uint64_t count, int ranks) const {
    return sendsBlocks || receivesBlocks ? count * static_cast<uint64_t>(ranks) : count;
  }
  bool sends(int rank, int root) const { return sender == Owner::Everyone || rank == root; }
  bool receives(int rank, int root) const { return receiver == Owner::Everyone || rank == root; }
  /// Bus bandwidth over algorithm bandwidth: what each link carries, whatever the number of ranks.
  double busFactor(int ranks) const;
};

const std::array<Operation, kNumOps>& operations();

/// By name; hyphens count as underscores. The error lists what there is.
Result<const Operation*> findOperation(std::string_view name);

/// "all_reduce, all_gather, …".
std::string operationNames();

}  // namespace tutti::bench
