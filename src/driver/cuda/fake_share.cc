// How the fake's memory passes between processes, and what it says of pointers.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "core/format.h"
#include "driver/cuda/fake_driver.h"

namespace tutti::driver::cuda {
namespace {

/// What an IPC handle and a fabric handle hold: where the memfd can be found as long as its owner lives.
struct Whereabouts {
  int64_t pid = 0;
  int64_t fd = 0;
  uint64_t serial = 0;
};

template <class Handle>
void tell(Handle* handle, const Backing& backing) {
  (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // else the kernel lets nobody but our parents open our descriptors
  const Whereabouts where{getpid(), backing.fd.get(), 0};
  *handle = {};
  std::memcpy(handle->bytes.data(), &where, sizeof where);
}

template <class Handle>
Whereabouts whereOf(const Handle& handle) {
  Whereabouts where;
  std::memcpy(&where, handle.bytes.data(), sizeof where);
  return where;
}

UniqueFd openOf(const Whereabouts& where) {
  return UniqueFd(open(format("/proc/{}/fd/{}", where.pid, where.fd).c_str(), O_RDWR | O_CLOEXEC));
}

}  // namespace

Error FakeDriver::memExportToShareableHandle(void* shareable, MemHandle handle, HandleType type, uint64_t flags) {
  const auto held = handles_.find(handle);
  if (held == handles_.end()) return Error::InvalidHandle;
  const Backing& backing = *held->second.backing;
  if (flags != 0 || !includes(backing.prop.requested, type)) return Error::InvalidValue;
  if (type == HandleType::Fabric) {
    tell(static_cast<FabricHandle*>(shareable), backing);
    return Error::Success;
  }
  const int fd = fcntl(backing.fd.get(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return Error::OperatingSystem;
  *static_cast<int*>(shareable) = fd;
  return Error::Success;
}

Error FakeDriver::memImportFromShareableHandle(MemHandle* handle, void* shareable, HandleType type) {
  if (!initialised_) return Error::NotInitialized;
  BackingRef backing;
  if (type == HandleType::PosixFd) {
    backing = openBacking(static_cast<int>(reinterpret_cast<intptr_t>(shareable)));
  } else if (type == HandleType::Fabric && options_.fabric) {
    const UniqueFd fd = openOf(whereOf(*static_cast<FabricHandle*>(shareable)));
    if (fd) backing = openBacking(fd.get());
  } else {
    return Error::NotSupported;
  }
  if (backing == nullptr || !isDevice(backing->prop.location.id)) return Error::InvalidValue;
  *handle = hold(std::move(backing));
  return Error::Success;
}

Error FakeDriver::memRetainAllocationHandle(MemHandle* handle, void* address) {
  const auto* entry = find(mapped_, reinterpret_cast<DevicePtr>(address), 1);
  if (entry == nullptr) return Error::InvalidValue;
  *handle = hold(entry->second.backing);
  return Error::Success;
}

Error FakeDriver::memGetAllocationPropertiesFromHandle(AllocationProp* prop, MemHandle handle) {
  const auto held = handles_.find(handle);
  if (held == handles_.end()) return Error::InvalidHandle;
  *prop = held->second.backing->prop;
  return Error::Success;
}

Error FakeDriver::memGetAddressRange(DevicePtr* base, size_t* bytes, DevicePtr address) {
  if (current() < 0) return Error::InvalidContext;  // as on real machines
  for (const Regions* regions : {&mapped_, &plain_, &opened_}) {
    const auto* entry = find(*regions, address, 1);
    if (entry == nullptr) continue;
    *base = entry->first;
    *bytes = entry->second.bytes;
    return Error::Success;
  }
  return Error::NotFound;
}

Error FakeDriver::memHostRegister(void* address, size_t bytes, uint32_t flags) {
  if (current() < 0) return Error::InvalidContext;
  if (!options_.hostRegister) return Error::NotSupported;
  if (address == nullptr || bytes == 0 || (flags & ~(kHostRegisterPortable | kHostRegisterDeviceMap)) != 0) return Error::InvalidValue;
  const auto at = reinterpret_cast<DevicePtr>(address);
  if (touches(registered_, at, bytes)) return Error::HostMemoryAlreadyRegistered;
  registered_[at] = {bytes, nullptr, current(), {}};
  return Error::Success;
}

Error FakeDriver::memHostGetDevicePointer(DevicePtr* device, void* host, uint32_t flags) {
  if (current() < 0) return Error::InvalidContext;
  const auto at = reinterpret_cast<DevicePtr>(host);
  if (flags != 0 || find(registered_, at, 1) == nullptr) return Error::InvalidValue;
  *device = at;
  return Error::Success;
}

Error FakeDriver::memHostUnregister(void* address) {
  return registered_.erase(reinterpret_cast<DevicePtr>(address)) == 1 ? Error::Success : Error::HostMemoryNotRegistered;
}

Error FakeDriver::ipcGetMemHandle(IpcHandle* handle, DevicePtr address) {
  const auto* entry = find(plain_, address, 1);
  if (entry == nullptr) return Error::InvalidValue;
  tell(handle, *entry->second.backing);
  return Error::Success;
}

Error FakeDriver::ipcOpenMemHandle(DevicePtr* address, IpcHandle handle, uint32_t flags) {
  if (current() < 0) return Error::InvalidContext;
  if (flags != kIpcLazyPeerAccess) return Error::InvalidValue;
  const Whereabouts where = whereOf(handle);
  if (where.pid == getpid()) return Error::InvalidContext;  // the driver refuses what is of its own process, too
  const UniqueFd fd = openOf(where);
  const BackingRef backing = fd ? openBacking(fd.get()) : nullptr;
  if (backing == nullptr || !isDevice(backing->prop.location.id)) return Error::InvalidHandle;
  if (!canReach(current(), backing->prop.location.id)) return Error::PeerAccessUnsupported;
  if (const Error error = mapAnywhere(backing, address); error != Error::Success) return error;
  opened_[*address] = {backing->bytes, backing, backing->prop.location.id, {}};
  return Error::Success;
}

Error FakeDriver::ipcCloseMemHandle(DevicePtr address) {
  const auto found = opened_.find(address);
  if (found == opened_.end()) return Error::InvalidValue;
  munmap(reinterpret_cast<void*>(address), found->second.backing->bytes);
  opened_.erase(found);
  return Error::Success;
}

Error FakeDriver::writeAttribute(void* value, PointerAttribute attribute, DevicePtr address) const {
  const Regions* kind = nullptr;
  const Regions::value_type* entry = nullptr;
  for (const Regions* regions : {&mapped_, &plain_, &opened_, &registered_}) {
    entry = find(*regions, address, 1);
    kind = regions;
    if (entry != nullptr) break;
  }
  const auto put = [value](auto number) { std::memcpy(value, &number, sizeof number); };
  const bool known = entry != nullptr;
  std::pair<DevicePtr, uint64_t> range{};  // of virtual memory: all of the reservation, whatever is mapped there
  if (known) range = {entry->first, entry->second.bytes};
  if (known && kind == &mapped_) range = *std::prev(reservations_.upper_bound(address));
  switch (attribute) {
    case PointerAttribute::MemoryType:
      put(!known ? uint32_t{0} : static_cast<uint32_t>(kind == &registered_ ? MemoryType::OnHost : MemoryType::OnDevice));
      break;
    case PointerAttribute::DevicePointer: put(known ? address : DevicePtr{0}); break;
    case PointerAttribute::BufferId: put(known ? entry->second.buffer : uint64_t{0}); break;
    case PointerAttribute::IsManaged: put(uint8_t{0}); break;
    case PointerAttribute::DeviceOrdinal: put(known ? entry->second.device : Device{-2}); break;
    case PointerAttribute::IsLegacyIpcCapable: put(uint8_t{known && kind == &plain_}); break;
    case PointerAttribute::RangeStart: put(range.first); break;
    case PointerAttribute::RangeSize: put(range.second); break;
    case PointerAttribute::Mapped: put(uint8_t{known}); break;
    case PointerAttribute::AllowedHandleTypes:
      put(known && kind == &mapped_ ? static_cast<uint64_t>(entry->second.backing->prop.requested) : uint64_t{0});
      break;
  }
  return known ? Error::Success : Error::InvalidValue;
}

Error FakeDriver::pointerGetAttribute(void* value, PointerAttribute attribute, DevicePtr address) {
  return writeAttribute(value, attribute, address);
}

Error FakeDriver::pointerGetAttributes(uint32_t count, PointerAttribute* attributes, void** values, DevicePtr address) {
  // As the driver: a pointer that it does not know is no error here, and leaves zeros.
  for (uint32_t i = 0; i < count; ++i) (void)writeAttribute(values[i], attributes[i], address);
  return Error::Success;
}

}  // namespace tutti::driver::cuda
