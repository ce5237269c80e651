#include "memory/device_allocation.h"

#include <cstring>
#include <utility>
#include <vector>

namespace tutti::memory {

using driver::cuda::AccessDesc;
using driver::cuda::ContextScope;
using driver::cuda::DevicePtr;
using driver::cuda::Driver;
using driver::cuda::FabricHandle;
using driver::cuda::HandleType;
using driver::cuda::OwnedMap;
using driver::cuda::OwnedMemory;
using driver::cuda::Range;

Result<Allocation> Allocation::create(const Gpu& gpu, Bytes bytes) {
  if (!gpu.hasVirtualMemory()) return fail(Code::InternalError, "device {} has no virtual memory", gpu.device());
  if (bytes.value > gpu.info().memory.value)
    return fail(Code::UnhandledCudaError, "{} bytes are more than the {} of device {}", bytes.value, gpu.info().memory.value, gpu.device());
  Allocation made;
  made.size_ = gpu.roundUp(bytes);
  made.handles_ = gpu.handles();
  auto memory = OwnedMemory::of(gpu.driver(), gpu.driver().createMemory(made.size_, gpu.properties()));
  if (!memory) return tl::unexpected(std::move(memory).error());
  made.memory_ = std::move(*memory);
  made.driver_ = &gpu.driver();
  return made;
}

Result<Allocation> Allocation::import(const Gpu& gpu, const ShareTicket& ticket, int fd) {
  if (ticket.bytes == 0 || ticket.offset != 0 || ticket.bytes % gpu.granularity().value != 0)
    return fail(Code::InvalidArgument, "memory of another process is said to have {} bytes from {} on: expected whole units of {}",
                ticket.bytes, ticket.offset, gpu.granularity().value);
  Driver& driver = gpu.driver();
  Result<OwnedMemory> memory =
      fail(Code::InvalidArgument, "memory of another process comes as kind {}, which has no handle to map", static_cast<int>(ticket.kind));
  Allocation made;
  if (ticket.kind == ShareKind::PosixFd) {
    memory = OwnedMemory::of(driver, driver.importFd(fd));
    made.handles_ = HandleType::PosixFd;
  } else if (ticket.kind == ShareKind::Fabric) {
    FabricHandle handle;
    handle.bytes = ticket.handle;
    memory = OwnedMemory::of(driver, driver.importFabric(handle));
    made.handles_ = HandleType::Fabric;
  }
  if (!memory) return tl::unexpected(std::move(memory).error());
  made.memory_ = std::move(*memory);
  made.size_ = Bytes(ticket.bytes);
  made.driver_ = &driver;
  return made;
}

Result<Allocation> Allocation::at(const Gpu& gpu, DevicePtr address) {
  Driver& driver = gpu.driver();
  auto memory = OwnedMemory::of(driver, driver.retainHandle(address));
  if (!memory) return tl::unexpected(std::move(memory).error());
  const auto scope = ContextScope::enter(gpu.context());
  if (!scope) return tl::unexpected(scope.error());
  const auto range = driver.rangeOf(address);
  if (!range) return tl::unexpected(range.error());
  const auto properties = driver.propertiesOf(memory->get());
  if (!properties) return tl::unexpected(properties.error());
  Allocation found;
  found.memory_ = std::move(*memory);
  found.size_ = range->bytes;
  found.handles_ = properties->requested;
  found.driver_ = &driver;
  return found;
}

Result<Shared> Allocation::share(ShareKind kind) const {
  const HandleType wanted = kind == ShareKind::PosixFd  ? HandleType::PosixFd
                            : kind == ShareKind::Fabric ? HandleType::Fabric
                                                        : HandleType::None;
  if (!includes(handles_, wanted))
    return fail(Code::InvalidUsage, "this memory was made for handle types {}: it cannot be shared as kind {}", static_cast<int>(handles_),
                static_cast<int>(kind));
  Shared shared;
  shared.ticket.kind = kind;
  shared.ticket.bytes = size_.value;
  if (kind == ShareKind::PosixFd) {
    auto fd = driver_->exportFd(handle());
    if (!fd) return tl::unexpected(std::move(fd).error());
    shared.fd = std::move(*fd);
    return shared;
  }
  const auto fabric = driver_->exportFabric(handle());
  if (!fabric) return tl::unexpected(fabric.error());
  shared.ticket.handle = fabric->bytes;
  return shared;
}

Result<OwnedMap> Allocation::mapAt(DevicePtr where, std::span<const driver::cuda::Device> accessors) const {
  const Range range{where, size_};
  if (Status status = driver_->map(range, handle()); !status.ok()) return tl::unexpected(std::move(status));
  OwnedMap map(*driver_, range);
  std::vector<AccessDesc> access;
  for (const driver::cuda::Device device : accessors) access.push_back(driver::cuda::readWriteFrom(device));
  if (Status status = driver_->setAccess(range, access); !status.ok()) return tl::unexpected(std::move(status));
  return map;
}

}  // namespace tutti::memory
