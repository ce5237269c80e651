// One stretch of addresses in which peer i lies at base + i × stride: a kernel finds any peer's memory with one multiplication.
//
// Owner: nobody yet (docs/decisions/0050-segments-without-a-stride.md); of windows of the device API a communicator, one for each of its
// ranks. PeerMappings go before it. Any thread; the range is fixed when it is reserved.
// 1. The stride is a multiple of 4 GiB, because device code counts strides in that unit (nccl_device.h), and covers the memory of the
//    largest device, so that a peer never outgrows its part. Addresses cost nothing until something is mapped.
// 2. An owner of memory says at which offset of its part it lies, and every reader maps it there; memory that all ranks have at the same
//    offset is a window. Each piece is mapped once, whoever and however many channels use it.
// 3. Offsets and sizes are whole units of granularity of all devices that take part.
// 4. The rank's own memory is mapped at its own part too, and its kernels use that address and no other (device_allocation.h, 2).
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "memory/device_allocation.h"

namespace tutti::memory {

inline constexpr Bytes kStrideUnit{uint64_t{4} << 30};

/// What kernels are given.
struct SpaceView {
  driver::cuda::DevicePtr base = 0;
  uint64_t stride = 0;
  constexpr driver::cuda::DevicePtr at(int32_t peer, uint64_t offset) const { return base + static_cast<uint64_t>(peer) * stride + offset; }
};
static_assert(std::is_trivially_copyable_v<SpaceView>);

/// Memory of a peer, mapped in its part.
class PeerMapping {
 public:
  PeerMapping() = default;
  explicit operator bool() const { return static_cast<bool>(map_); }
  driver::cuda::DevicePtr address() const { return map_.get().address; }
  Bytes size() const { return map_.get().bytes; }

 private:
  friend class AddressSpace;
  PeerMapping(Allocation allocation, driver::cuda::OwnedMap map) : allocation_(std::move(allocation)), map_(std::move(map)) {}
  Allocation allocation_;  // empty when its holder keeps it
  driver::cuda::OwnedMap map_;
};

class AddressSpace {
 public:
  AddressSpace() = default;
  /// The stride for devices of which the largest has that much memory.
  static Bytes strideFor(Bytes largest);
  /// Addresses for `peers` (> 0) peers of a rank on `gpu`. `stride` is what all ranks have agreed on.
  static Result<AddressSpace> reserve(const Gpu& gpu, int32_t peers, Bytes stride);

  explicit operator bool() const { return static_cast<bool>(addresses_); }
  SpaceView view() const { return {addresses_.get().address, stride_.value}; }
  int32_t peers() const { return peers_; }

  /// Maps memory of `peer` at `offset` of its part for this rank's device. The memory's holder stays; InvalidArgument: it does not fit
  /// there.
  Result<PeerMapping> map(int32_t peer, uint64_t offset, const Allocation& allocation) const;
  /// The same with memory of another process, which the mapping then keeps.
  Result<PeerMapping> mapShared(int32_t peer, uint64_t offset, const ShareTicket& ticket, int fd) const;

 private:
  const Gpu* gpu_ = nullptr;
  driver::cuda::OwnedAddresses addresses_;
  Bytes stride_;
  int32_t peers_ = 0;
};

}  // namespace tutti::memory
