// A rank's two buffers, cut into slots that the calls of a block go round through, and where a call's data lie in them.
//
// Owner: a rank's process, one thread. Slots begin at multiples of 4096 bytes.
#pragma once

#include "gpu/device.h"
#include "gpu/library.h"
#include "gpu/options.h"

namespace tutti::bench::gpu {

/// Where a rank's data lie for one call.
struct Place {
  std::byte* send = nullptr;
  std::byte* receive = nullptr;
};

/// Where a rank's input and output lie in two buffers, each long enough for the call; of calls in place in one of them.
Place placeIn(const CallKind& kind, std::byte* send, std::byte* receive, int rank);

/// What is asked for so is a multiple of what allocators ask the driver for: other lengths are given smaller pages.
inline constexpr uint64_t kAllocationUnit = 2 << 20;
/// Memory of the kind that is measured: plain, or `owner`'s ncclMemAlloc.
std::byte* allocate(Device& device, const Library& owner, Buffers kind, uint64_t bytes);

class BlockBuffers {
 public:
  BlockBuffers(Device& device, const BenchOptions& options, const Library& owner, int rank, int ranks);
  ~BlockBuffers();
  BlockBuffers(const BlockBuffers&) = delete;
  BlockBuffers& operator=(const BlockBuffers&) = delete;

  std::byte* send() const { return send_; }
  std::byte* receive() const { return receive_; }
  uint64_t capacity() const { return capacity_; }

  /// How many slots a block of so many calls goes through; in place, no slot twice.
  int slots(const CallKind& kind, int calls) const;
  Place place(const CallKind& kind, int slot) const;

  /// Inputs of all slots anew, results spoilt. Each slot has a seed of its own.
  void write(const CallKind& kind, int slots, uint64_t seed);
  /// Wrong elements of this rank in all slots; says the first of a slot that has some.
  uint64_t countWrong(const CallKind& kind, int slots, uint64_t seed, std::string_view who);

 private:
  Device& device_;
  const BenchOptions& options_;
  const Library& owner_;
  int rank_;
  int ranks_;
  uint64_t capacity_;
  std::byte* send_ = nullptr;
  std::byte* receive_ = nullptr;
};

}  // namespace tutti::bench::gpu
