#include "transport/device/published.h"

#include <algorithm>
#include <utility>

#include "core/format.h"

namespace tutti::transport::device {

using driver::cuda::DevicePtr;
using driver::cuda::HandleType;

Result<Published::At> Published::add(const memory::Gpu& gpu, DevicePtr address, Bytes bytes, Readers readers) {
  const auto refuse = [&](std::string_view why) {
    return fail(Code::UnhandledCudaError, "{} bytes at {:#x} cannot be shared between GPUs: {}", bytes.value, address, why);
  };
  const auto scope = driver::cuda::SetUpScope::enter(gpu.context());
  if (!scope) return tl::unexpected(scope.error());
  const auto info = gpu.driver().describePointer(address);
  if (!info) return tl::unexpected(info.error());
  if (info->type != driver::cuda::MemoryType::OnDevice || info->device != gpu.device())
    return refuse(format("it is no memory of device {}", gpu.device()));
  const bool isVirtual = gpu.hasVirtualMemory() && includes(info->handles, HandleType::PosixFd);
  if (!isVirtual && (readers == Readers::Any || !info->legacyIpc))
    return refuse("it was not allocated to be exported as a descriptor; ncclMemAlloc does that");
  const auto range = gpu.driver().rangeOf(address);  // one mapping; the range of `info` is all of a reservation
  if (!range) return tl::unexpected(range.error());
  const uint64_t offset = address - range->address;
  if (bytes.value > range->bytes.value - offset)
    return refuse(format("they reach past the end of their allocation, {} bytes at {:#x}", range->bytes.value, range->address));
  const auto buffer = gpu.driver().bufferOf(address);
  if (!buffer) return tl::unexpected(buffer.error());
  const std::lock_guard lock(mutex_);
  const auto known =
      std::ranges::find_if(entries_, [&](const auto& e) { return e.second.gpu == &gpu && e.second.buffer == *buffer; });
  if (known != entries_.end()) {
    ++known->second.uses;
    return At{known->first, offset, *buffer, known->second.hasFinePages()};
  }
  Entry entry;
  entry.gpu = &gpu;
  entry.buffer = *buffer;
  if (isVirtual) {
    auto allocation = memory::Allocation::at(gpu, address);
    if (!allocation) return tl::unexpected(std::move(allocation).error());
    entry.allocation = std::move(*allocation);
  } else {
    auto shared = memory::shareLegacy(gpu, range->address, range->bytes);
    if (!shared) return tl::unexpected(std::move(shared).error());
    entry.plain = shared->ticket;
  }
  const uint64_t number = ++lastNumber_;
  const At at{number, offset, *buffer, entry.hasFinePages()};
  entries_.emplace(number, std::move(entry));
  return at;
}

void Published::remove(uint64_t number) {
  decltype(entries_)::node_type gone;  // outlives the lock
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(number);
  if (found != entries_.end() && --found->second.uses == 0) gone = entries_.extract(found);
}

Result<memory::Shared> Published::share(int32_t device, uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(number);
  if (found == entries_.end() || found->second.gpu->device() != device)
    return fail(Code::InvalidArgument, "the process has no memory of number {} on device {} registered", number, device);
  const auto scope = driver::cuda::SetUpScope::enter(found->second.gpu->context());
  if (!scope) return tl::unexpected(scope.error());
  if (found->second.plain.kind == memory::ShareKind::None) return found->second.allocation.share(memory::ShareKind::PosixFd);
  memory::Shared shared;
  shared.ticket = found->second.plain;
  return shared;
}

size_t Published::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace tutti::transport::device
