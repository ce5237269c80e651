// The fake's virtual and plain memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "driver/cuda/fake_driver.h"

namespace tutti::driver::cuda {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMark = 0x61646375656b6166;  // tells a memfd of a fake from any other file

/// Lies behind the last byte of the memory.
struct Footer {
  uint64_t mark = kMark;
  uint64_t bytes = 0;
  AllocationProp prop;
};

void* pointerTo(DevicePtr address) { return reinterpret_cast<void*>(address); }

/// The addresses stay taken, with nothing behind them.
bool clearPages(DevicePtr address, uint64_t bytes) {
  return mmap(pointerTo(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

}  // namespace

FakeDriver::~FakeDriver() {
  queues_.finish();
  for (const auto& [address, bytes] : reservations_) munmap(pointerTo(address), bytes);
  for (const Regions* regions : {&plain_, &opened_})
    for (const auto& [address, region] : *regions) munmap(pointerTo(address), region.backing->bytes);
}

Error FakeDriver::makeBacking(uint64_t bytes, const AllocationProp& prop, BackingRef* backing) {
  uint64_t& used = used_[static_cast<size_t>(prop.location.id)];
  if (bytes > options_.memory.value - used) return Error::OutOfMemory;
  auto made = std::make_shared<Backing>();
  made->fd = UniqueFd(memfd_create("fake-cuda", MFD_CLOEXEC));
  const Footer footer{kMark, bytes, prop};
  if (!made->fd || ftruncate(made->fd.get(), static_cast<off_t>(bytes)) != 0 ||
      pwrite(made->fd.get(), &footer, sizeof footer, static_cast<off_t>(bytes)) != sizeof footer)
    return Error::OperatingSystem;
  made->bytes = bytes;
  made->prop = prop;
  made->charged = &used;
  used += bytes;
  *backing = std::move(made);
  return Error::Success;
}

BackingRef FakeDriver::openBacking(int fd) {
  auto opened = std::make_shared<Backing>();
  opened->fd = UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  struct stat info {};
  Footer footer;
  if (!opened->fd || fstat(fd, &info) != 0 || info.st_size < static_cast<off_t>(sizeof footer)) return nullptr;
  if (pread(fd, &footer, sizeof footer, info.st_size - static_cast<off_t>(sizeof footer)) != sizeof footer || footer.mark != kMark)
    return nullptr;
  opened->bytes = footer.bytes;
  opened->prop = footer.prop;
  return opened;
}

MemHandle FakeDriver::hold(BackingRef backing) {
  for (auto& [id, handle] : handles_) {
    if (handle.backing != backing) continue;
    ++handle.references;
    return id;
  }
  handles_[++lastHandle_] = {std::move(backing), 1};
  return lastHandle_;
}

const Regions::value_type* FakeDriver::find(const Regions& regions, DevicePtr address, uint64_t bytes) {
  const auto after = regions.upper_bound(address);
  if (after == regions.begin()) return nullptr;
  const auto& entry = *std::prev(after);
  return bytes <= entry.second.bytes && address - entry.first <= entry.second.bytes - bytes && address - entry.first < entry.second.bytes
             ? &entry
             : nullptr;
}

bool FakeDriver::touches(const Regions& regions, DevicePtr address, uint64_t bytes) {
  return std::ranges::any_of(
      regions, [&](const auto& entry) { return address < entry.first + entry.second.bytes && entry.first < address + bytes; });
}

bool FakeDriver::loses(Device from, DevicePtr address) const {
  for (const Regions* regions : {&mapped_, &plain_, &opened_})
    if (const auto* entry = find(*regions, address, 1)) return options_.lossy.contains({from, entry->second.device});
  return false;
}

bool FakeDriver::accessible(Device device, DevicePtr address, uint64_t bytes) const {
  if (loses(device, address)) return false;
  if (const auto* entry = find(mapped_, address, bytes)) {
    const auto access = entry->second.access.find(device);
    return access != entry->second.access.end() && access->second == Access::ReadWrite;
  }
  if (const auto* entry = find(plain_, address, bytes))
    return entry->second.device == device || peers_.contains({device, entry->second.device});
  if (const auto* entry = find(opened_, address, bytes)) return canReach(device, entry->second.device);
  return find(registered_, address, bytes) != nullptr;
}

Error FakeDriver::memGetInfo(size_t* free, size_t* total) {
  if (current() < 0) return Error::InvalidContext;
  *total = options_.memory.value;
  *free = options_.memory.value - used_[static_cast<size_t>(current())];
  return Error::Success;
}

Error FakeDriver::memGetAllocationGranularity(size_t* bytes, const AllocationProp* prop, Granularity) {
  if (!options_.virtualMemory) return Error::NotSupported;
  if (prop->type != AllocationType::Pinned || prop->location.type != LocationType::OnDevice) return Error::InvalidValue;
  if (!isDevice(prop->location.id)) return Error::InvalidDevice;
  *bytes = options_.granularity.value;
  return Error::Success;
}

Error FakeDriver::memCreate(MemHandle* handle, size_t bytes, const AllocationProp* prop, uint64_t flags) {
  if (!options_.virtualMemory) return Error::NotSupported;
  if (flags != 0 || prop->type != AllocationType::Pinned || prop->location.type != LocationType::OnDevice || !isGranular(bytes))
    return Error::InvalidValue;
  if (!isDevice(prop->location.id)) return Error::InvalidDevice;
  if (includes(prop->requested, HandleType::PosixFd) && !options_.posixFd) return Error::NotSupported;
  if (includes(prop->requested, HandleType::Fabric) && !options_.fabric) return Error::NotSupported;
  if (includes(prop->requested, HandleType::Fabric) && !options_.fabricPermitted) return Error::NotPermitted;
  if (prop->flags.rdma != 0 && !options_.rdma) return Error::NotSupported;
  BackingRef backing;
  if (const Error error = makeBacking(bytes, *prop, &backing); error != Error::Success) return error;
  *handle = hold(std::move(backing));
  return Error::Success;
}

Error FakeDriver::memRelease(MemHandle handle) {
  const auto held = handles_.find(handle);
  if (held == handles_.end()) return Error::InvalidHandle;
  if (--held->second.references == 0) handles_.erase(held);
  return Error::Success;
}

Error FakeDriver::memAddressReserve(DevicePtr* address, size_t bytes, size_t alignment, DevicePtr wanted, uint64_t flags) {
  if (!options_.virtualMemory) return Error::NotSupported;
  if (alignment == 0) alignment = options_.granularity.value;
  if (flags != 0 || wanted != 0 || !isGranular(bytes) || (alignment & (alignment - 1)) != 0) return Error::InvalidValue;
  alignment = std::max<size_t>(alignment, options_.granularity.value);
  void* const found = mmap(nullptr, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return Error::OutOfMemory;
  const auto from = reinterpret_cast<DevicePtr>(found);
  const DevicePtr start = (from + alignment - 1) / alignment * alignment;
  if (start > from) munmap(found, start - from);
  if (start + bytes < from + bytes + alignment) munmap(pointerTo(start + bytes), from + alignment - start);
  reservations_[start] = bytes;
  *address = start;
  return Error::Success;
}

Error FakeDriver::memAddressFree(DevicePtr address, size_t bytes) {
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second != bytes || touches(mapped_, address, bytes)) return Error::InvalidValue;
  munmap(pointerTo(address), bytes);
  reservations_.erase(found);
  return Error::Success;
}

Error FakeDriver::memMap(DevicePtr address, size_t bytes, size_t offset, MemHandle handle, uint64_t flags) {
  const auto held = handles_.find(handle);
  if (held == handles_.end()) return Error::InvalidHandle;
  const BackingRef& backing = held->second.backing;
  if (flags != 0 || offset != 0 || !isGranular(bytes) || address % options_.granularity.value != 0 || bytes > backing->bytes)
    return Error::InvalidValue;
  const auto after = reservations_.upper_bound(address);
  if (after == reservations_.begin()) return Error::InvalidValue;
  const auto& [start, room] = *std::prev(after);
  if (address + bytes > start + room) return Error::InvalidValue;
  if (touches(mapped_, address, bytes)) return Error::AlreadyMapped;
  if (mmap(pointerTo(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, backing->fd.get(), 0) == MAP_FAILED)
    return Error::MapFailed;
  mapped_[address] = {bytes, backing, backing->prop.location.id, {}};
  return Error::Success;
}

Error FakeDriver::memUnmap(DevicePtr address, size_t bytes) {
  const auto found = mapped_.find(address);
  if (found == mapped_.end() || found->second.bytes != bytes) return Error::NotMapped;
  if (!clearPages(address, bytes)) return Error::OperatingSystem;
  mapped_.erase(found);
  return Error::Success;
}

Error FakeDriver::memSetAccess(DevicePtr address, size_t bytes, const AccessDesc* list, size_t count) {
  const auto found = mapped_.find(address);
  if (found == mapped_.end() || found->second.bytes != bytes || count == 0) return Error::InvalidValue;
  Region& region = found->second;
  for (size_t i = 0; i < count; ++i) {
    const Device device = list[i].location.id;
    if (list[i].location.type != LocationType::OnDevice || !isDevice(device)) return Error::InvalidDevice;
    if (!canReach(device, region.device)) return Error::InvalidDevice;
  }
  for (size_t i = 0; i < count; ++i) region.access[list[i].location.id] = list[i].flags;
  const bool any = std::ranges::any_of(region.access, [](const auto& entry) { return entry.second != Access::None; });
  return mprotect(pointerTo(address), bytes, any ? PROT_READ | PROT_WRITE : PROT_NONE) == 0 ? Error::Success : Error::OperatingSystem;
}

Error FakeDriver::mapAnywhere(const BackingRef& backing, DevicePtr* address) const {
  void* const found = mmap(nullptr, backing->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, backing->fd.get(), 0);
  *address = reinterpret_cast<DevicePtr>(found);
  return found == MAP_FAILED ? Error::MapFailed : Error::Success;
}

Error FakeDriver::memAlloc(DevicePtr* address, size_t bytes) {
  if (current() < 0) return Error::InvalidContext;
  if (bytes == 0) return Error::InvalidValue;
  if (bytes > options_.memory.value) return Error::OutOfMemory;
  AllocationProp prop;
  prop.type = AllocationType::Pinned;
  prop.location = {LocationType::OnDevice, current()};
  BackingRef backing;
  if (const Error error = makeBacking((bytes + kPage - 1) / kPage * kPage, prop, &backing); error != Error::Success) return error;
  if (const Error error = mapAnywhere(backing, address); error != Error::Success) return error;
  plain_[*address] = {bytes, std::move(backing), current(), {}};
  return Error::Success;
}

Error FakeDriver::memFree(DevicePtr address) {
  const auto found = plain_.find(address);
  if (found == plain_.end()) return Error::InvalidValue;
  munmap(pointerTo(address), found->second.backing->bytes);
  plain_.erase(found);
  return Error::Success;
}

}  // namespace tutti::driver::cuda
