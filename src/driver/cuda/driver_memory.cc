// The part of Driver that deals with memory.
#include <array>
#include <utility>

#include "driver/cuda/driver.h"

namespace tutti::driver::cuda {
namespace {

void* asPointer(DevicePtr address) { return reinterpret_cast<void*>(address); }

/// Whether the driver says that it will not, rather than that the device or the process is in trouble. Systems differ in how they say it.
bool isRefusal(Error error) {
  switch (error) {
    case Error::InvalidValue: case Error::InvalidDevice: case Error::OperatingSystem: case Error::InvalidHandle:
    case Error::NotPermitted: case Error::NotSupported: case Error::SystemNotReady: case Error::Unknown:
      return true;
    default: return false;
  }
}

}  // namespace

Result<Bytes> Driver::granularity(const AllocationProp& prop, Granularity option) {
  size_t bytes = 0;
  const Error error = api_->memGetAllocationGranularity(&bytes, &prop, option);
  return checked(error, Bytes(bytes), Call::memGetAllocationGranularity, "device {}, handle types {}", prop.location.id,
                 static_cast<int32_t>(prop.requested));
}

Result<MemHandle> Driver::createMemory(Bytes bytes, const AllocationProp& prop) {
  MemHandle handle = 0;
  const Error error = api_->memCreate(&handle, bytes.value, &prop, 0);
  return checked(error, handle, Call::memCreate, "{} bytes on device {}, handle types {}", bytes.value, prop.location.id,
                 static_cast<int32_t>(prop.requested));
}

Result<std::optional<MemHandle>> Driver::createIfPermitted(Bytes bytes, const AllocationProp& prop) {
  MemHandle handle = 0;
  const Error error = api_->memCreate(&handle, bytes.value, &prop, 0);
  if (isRefusal(error)) return std::nullopt;
  return checked(error, std::optional(handle), Call::memCreate, "{} bytes on device {}, handle types {}", bytes.value, prop.location.id,
                 static_cast<int32_t>(prop.requested));
}

void Driver::releaseMemory(MemHandle handle) { lose(api_->memRelease(handle), Call::memRelease, "handle {:#x}", handle); }

Result<Range> Driver::reserveAddresses(Bytes bytes, Bytes alignment) {
  DevicePtr address = 0;
  const Error error = api_->memAddressReserve(&address, bytes.value, alignment.value, 0, 0);
  return checked(error, Range{address, bytes}, Call::memAddressReserve, "{} bytes at a multiple of {}", bytes.value, alignment.value);
}

void Driver::freeAddresses(Range range) {
  lose(api_->memAddressFree(range.address, range.bytes.value), Call::memAddressFree, "{} bytes at {:#x}", range.bytes.value, range.address);
}

Status Driver::map(Range range, MemHandle handle) {
  return check(api_->memMap(range.address, range.bytes.value, 0, handle, 0), Call::memMap, "{} bytes at {:#x}, handle {:#x}",
               range.bytes.value, range.address, handle);
}

void Driver::unmap(Range range) {
  lose(api_->memUnmap(range.address, range.bytes.value), Call::memUnmap, "{} bytes at {:#x}", range.bytes.value, range.address);
}

Status Driver::setAccess(Range range, std::span<const AccessDesc> list) {
  return check(api_->memSetAccess(range.address, range.bytes.value, list.data(), list.size()), Call::memSetAccess,
               "{} bytes at {:#x} for {} devices, the first of them {}", range.bytes.value, range.address, list.size(),
               list.empty() ? -1 : list.front().location.id);
}

Result<UniqueFd> Driver::exportFd(MemHandle handle) {
  int fd = -1;
  const Error error = api_->memExportToShareableHandle(&fd, handle, HandleType::PosixFd, 0);
  Status status = check(error, Call::memExportToShareableHandle, "handle {:#x} as a file descriptor", handle);
  if (!status.ok()) return tl::unexpected(std::move(status));
  return UniqueFd(fd);
}

Result<FabricHandle> Driver::exportFabric(MemHandle handle) {
  FabricHandle fabric;
  const Error error = api_->memExportToShareableHandle(&fabric, handle, HandleType::Fabric, 0);
  return checked(error, fabric, Call::memExportToShareableHandle, "handle {:#x} as a fabric handle", handle);
}

Result<std::optional<FabricHandle>> Driver::exportFabricIfPermitted(MemHandle handle) {
  FabricHandle fabric;
  const Error error = api_->memExportToShareableHandle(&fabric, handle, HandleType::Fabric, 0);
  if (isRefusal(error)) return std::nullopt;
  return checked(error, std::optional(fabric), Call::memExportToShareableHandle, "handle {:#x} as a fabric handle", handle);
}

Result<MemHandle> Driver::importFd(int fd) {
  MemHandle handle = 0;
  const Error error = api_->memImportFromShareableHandle(&handle, asPointer(static_cast<DevicePtr>(fd)), HandleType::PosixFd);
  return checked(error, handle, Call::memImportFromShareableHandle, "file descriptor {}", fd);
}

Result<MemHandle> Driver::importFabric(FabricHandle fabric) {
  MemHandle handle = 0;
  const Error error = api_->memImportFromShareableHandle(&handle, &fabric, HandleType::Fabric);
  return checked(error, handle, Call::memImportFromShareableHandle, "a fabric handle");
}

Result<MemHandle> Driver::retainHandle(DevicePtr address) {
  MemHandle handle = 0;
  const Error error = api_->memRetainAllocationHandle(&handle, asPointer(address));
  return checked(error, handle, Call::memRetainAllocationHandle, "address {:#x}", address);
}

Result<AllocationProp> Driver::propertiesOf(MemHandle handle) {
  AllocationProp prop;
  const Error error = api_->memGetAllocationPropertiesFromHandle(&prop, handle);
  return checked(error, prop, Call::memGetAllocationPropertiesFromHandle, "handle {:#x}", handle);
}

Result<DevicePtr> Driver::allocate(Bytes bytes) {
  DevicePtr address = 0;
  const Error error = api_->memAlloc(&address, bytes.value);
  return checked(error, address, Call::memAlloc, "{} bytes", bytes.value);
}

void Driver::freePlain(DevicePtr address) { lose(api_->memFree(address), Call::memFree, "address {:#x}", address); }

Result<Driver::MemoryLeft> Driver::memoryLeft() {
  size_t free = 0;
  size_t total = 0;
  const Error error = api_->memGetInfo(&free, &total);
  return checked(error, MemoryLeft{Bytes(free), Bytes(total)}, Call::memGetInfo, "");
}

Result<IpcHandle> Driver::exportIpc(DevicePtr address) {
  IpcHandle handle;
  const Error error = api_->ipcGetMemHandle(&handle, address);
  return checked(error, handle, Call::ipcGetMemHandle, "address {:#x}", address);
}

Result<DevicePtr> Driver::openIpc(const IpcHandle& handle) {
  DevicePtr address = 0;
  const Error error = api_->ipcOpenMemHandle(&address, handle, kIpcLazyPeerAccess);
  return checked(error, address, Call::ipcOpenMemHandle, "memory of another process");
}

void Driver::closeIpc(DevicePtr address) { lose(api_->ipcCloseMemHandle(address), Call::ipcCloseMemHandle, "address {:#x}", address); }

Status Driver::registerHost(void* address, Bytes bytes) {
  return check(api_->memHostRegister(address, bytes.value, kHostRegisterPortable | kHostRegisterDeviceMap), Call::memHostRegister,
               "{} bytes at {}", bytes.value, static_cast<const void*>(address));
}

void Driver::unregisterHost(void* address) {
  lose(api_->memHostUnregister(address), Call::memHostUnregister, "address {}", static_cast<const void*>(address));
}

Result<DevicePtr> Driver::devicePointer(void* host) {
  DevicePtr address = 0;
  const Error error = api_->memHostGetDevicePointer(&address, host, 0);
  return checked(error, address, Call::memHostGetDevicePointer, "host address {}", static_cast<const void*>(host));
}

Result<PointerInfo> Driver::describePointer(DevicePtr address) {
  PointerInfo info;
  // The driver writes plain numbers of four or eight bytes; a pointer that it does not know leaves them zero.
  uint32_t type = 0;
  int32_t device = -1;
  uint32_t managed = 0;
  uint32_t legacyIpc = 0;
  DevicePtr start = 0;
  size_t bytes = 0;
  uint64_t handles = 0;
  std::array attributes{PointerAttribute::MemoryType,         PointerAttribute::DeviceOrdinal, PointerAttribute::IsManaged,
                        PointerAttribute::IsLegacyIpcCapable, PointerAttribute::RangeStart,    PointerAttribute::RangeSize,
                        PointerAttribute::AllowedHandleTypes};
  std::array<void*, attributes.size()> values{&type, &device, &managed, &legacyIpc, &start, &bytes, &handles};
  const Error error = api_->pointerGetAttributes(attributes.size(), attributes.data(), values.data(), address);
  Status status = check(error, Call::pointerGetAttributes, "address {:#x}", address);
  if (!status.ok()) return tl::unexpected(std::move(status));
  info.type = static_cast<MemoryType>(type);
  if (info.type == MemoryType::Unregistered) return info;
  info.device = device;
  info.managed = (managed & 0xff) != 0;
  info.legacyIpc = (legacyIpc & 0xff) != 0;
  info.handles =
      static_cast<HandleType>(handles & (static_cast<uint64_t>(HandleType::PosixFd) | static_cast<uint64_t>(HandleType::Fabric)));
  info.range = {start, Bytes(bytes)};
  return info;
}

Result<uint64_t> Driver::bufferOf(DevicePtr address) {
  uint64_t buffer = 0;
  auto attribute = PointerAttribute::BufferId;
  void* value = &buffer;
  const Error error = api_->pointerGetAttributes(1, &attribute, &value, address);
  return checked(error, buffer, Call::pointerGetAttributes, "address {:#x}", address);
}

Result<Range> Driver::rangeOf(DevicePtr address) {
  DevicePtr base = 0;
  size_t bytes = 0;
  const Error error = api_->memGetAddressRange(&base, &bytes, address);
  return checked(error, Range{base, Bytes(bytes)}, Call::memGetAddressRange, "address {:#x}", address);
}

}  // namespace tutti::driver::cuda
