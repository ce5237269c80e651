#include "transport/device/published.h"

#include <utility>

#include "core/format.h"

namespace tutti::transport::device {

using driver::cuda::DevicePtr;
using driver::cuda::HandleType;

Result<Published::At> Published::add(const memory::Gpu& gpu, DevicePtr address, Bytes bytes) {
  const auto refuse = [&](std::string_view why) {
    return fail(Code::UnhandledCudaError, "{} bytes at {:#x} cannot be shared between GPUs: {}", bytes.value, address, why);
  };
  const auto scope = driver::cuda::SetUpScope::enter(gpu.context());
  if (!scope) return tl::unexpected(scope.error());
  const auto info = gpu.driver().describePointer(address);
  if (!info) return tl::unexpected(info.error());
  if (info->type != driver::cuda::MemoryType::OnDevice || info->device != gpu.device())
    return refuse(format("it is no memory of device {}", gpu.device()));
  if (!gpu.hasVirtualMemory() || !includes(info->handles, HandleType::PosixFd))
    return refuse("it was not allocated to be exported as a descriptor; ncclMemAlloc does that");
  const uint64_t offset = address - info->range.address;
  if (bytes.value > info->range.bytes.value - offset)
    return refuse(format("they reach past the end of their allocation, {} bytes at {:#x}", info->range.bytes.value, info->range.address));
  const auto buffer = gpu.driver().bufferOf(address);
  if (!buffer) return tl::unexpected(buffer.error());
  auto allocation = memory::Allocation::at(gpu, address);
  if (!allocation) return tl::unexpected(std::move(allocation).error());
  const std::lock_guard lock(mutex_);
  const uint64_t number = ++lastNumber_;
  entries_.emplace(number, Entry{gpu.device(), std::move(*allocation)});
  return At{number, offset, *buffer};
}

void Published::remove(uint64_t number) {
  decltype(entries_)::node_type gone;  // outlives the lock
  const std::lock_guard lock(mutex_);
  gone = entries_.extract(number);
}

Result<memory::Shared> Published::share(int32_t device, uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(number);
  if (found == entries_.end() || found->second.device != device)
    return fail(Code::InvalidArgument, "the process has no memory of number {} on device {} registered", number, device);
  return found->second.allocation.share(memory::ShareKind::PosixFd);
}

size_t Published::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace tutti::transport::device
