#include "memory/device_space.h"

#include <algorithm>
#include <utility>

namespace tutti::memory {

using driver::cuda::OwnedAddresses;
using driver::cuda::OwnedMap;

Bytes AddressSpace::strideFor(Bytes largest) {
  const uint64_t units = largest.value / kStrideUnit.value + (largest.value % kStrideUnit.value != 0 ? 1 : 0);
  return Bytes(std::max<uint64_t>(units, 1) * kStrideUnit.value);
}

Result<AddressSpace> AddressSpace::reserve(const Gpu& gpu, int32_t peers, Bytes stride) {
  if (peers <= 0 || stride.value == 0 || stride.value % kStrideUnit.value != 0 || stride.value % gpu.granularity().value != 0)
    return fail(Code::InvalidArgument, "{} peers at a stride of {} bytes: expected at least one, and a multiple of {}", peers, stride.value,
                kStrideUnit.value);
  if (!gpu.hasVirtualMemory()) return fail(Code::InvalidUsage, "device {} has no virtual memory to lay peers out in", gpu.device());
  AddressSpace space;
  space.gpu_ = &gpu;
  space.stride_ = stride;
  space.peers_ = peers;
  auto addresses =
      OwnedAddresses::of(gpu.driver(), gpu.driver().reserveAddresses(stride * static_cast<uint64_t>(peers), gpu.granularity()));
  if (!addresses) return tl::unexpected(std::move(addresses).error().at("reserve addresses for peers"));
  space.addresses_ = std::move(*addresses);
  return space;
}

Result<PeerMapping> AddressSpace::map(int32_t peer, uint64_t offset, const Allocation& allocation) const {
  const uint64_t bytes = allocation.size().value;
  if (peer < 0 || peer >= peers_ || offset % gpu_->granularity().value != 0 || bytes > stride_.value || offset > stride_.value - bytes)
    return fail(Code::InvalidArgument, "{} bytes at offset {} of peer {}: expected a multiple of {} within {} bytes, and a peer below {}",
                bytes, offset, peer, gpu_->granularity().value, stride_.value, peers_);
  const driver::cuda::Device reader[] = {gpu_->device()};
  auto map = allocation.mapAt(view().at(peer, offset), reader);
  if (!map) return tl::unexpected(std::move(map).error().at(format("map memory of peer {}", peer)));
  return PeerMapping(Allocation(), std::move(*map));
}

Result<PeerMapping> AddressSpace::mapShared(int32_t peer, uint64_t offset, const ShareTicket& ticket, int fd) const {
  auto allocation = Allocation::import(*gpu_, ticket, fd);
  if (!allocation) return tl::unexpected(std::move(allocation).error().at(format("import memory of peer {}", peer)));
  auto mapping = map(peer, offset, *allocation);
  if (mapping) mapping->allocation_ = std::move(*allocation);
  return mapping;
}

}  // namespace tutti::memory
