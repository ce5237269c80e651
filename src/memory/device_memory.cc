#include "memory/device_memory.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tutti::memory {

using driver::cuda::ContextScope;
using driver::cuda::Driver;
using driver::cuda::HandleType;
using driver::cuda::IpcHandle;
using driver::cuda::OwnedAddresses;

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : gpu_(other.gpu_),
      allocation_(std::move(other.allocation_)),
      addresses_(std::move(other.addresses_)),
      map_(std::move(other.map_)),
      address_(std::exchange(other.address_, 0)),
      plainAddress_(std::exchange(other.plainAddress_, 0)),
      size_(std::exchange(other.size_, Bytes(0))),
      plain_(std::exchange(other.plain_, Plain::None)),
      mapping_(std::move(other.mapping_)),
      registered_(std::move(other.registered_)) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  if (this == &other) return *this;
  freePlain();
  map_ = std::move(other.map_);  // what is mapped goes before the addresses, and these before the memory
  addresses_ = std::move(other.addresses_);
  allocation_ = std::move(other.allocation_);
  registered_ = std::move(other.registered_);  // before the memory, too
  mapping_ = std::move(other.mapping_);
  gpu_ = other.gpu_;
  address_ = std::exchange(other.address_, 0);
  plainAddress_ = std::exchange(other.plainAddress_, 0);
  size_ = std::exchange(other.size_, Bytes(0));
  plain_ = std::exchange(other.plain_, Plain::None);
  return *this;
}

DeviceMemory::~DeviceMemory() { freePlain(); }

void DeviceMemory::freePlain() {
  const Plain plain = std::exchange(plain_, Plain::None);
  if (plain == Plain::None) return;
  Driver& driver = gpu_->driver();
  const auto scope = driver::cuda::SetUpScope::enter(gpu_->context());
  if (!scope) driver.tellLost(scope.error());  // and try all the same: most calls that free need no context
  if (plain == Plain::Own) {
    driver.freePlain(plainAddress_);
  } else {
    driver.closeIpc(plainAddress_);
  }
}

Result<DeviceMemory> DeviceMemory::allocate(const Gpu& gpu, Bytes bytes, std::span<const driver::cuda::Device> accessors) {
  DeviceMemory made;
  made.gpu_ = &gpu;
  if (!gpu.hasVirtualMemory()) {
    const auto scope = ContextScope::enter(gpu.context());
    if (!scope) return tl::unexpected(scope.error());
    made.size_ = gpu.roundUp(bytes);
    const auto address = gpu.driver().allocate(made.size_);
    if (!address) return tl::unexpected(address.error());
    made.plain_ = Plain::Own;
    made.address_ = made.plainAddress_ = *address;
    return made;
  }
  auto allocation = Allocation::create(gpu, bytes);
  if (!allocation) return tl::unexpected(std::move(allocation).error());
  made.allocation_ = std::move(*allocation);
  made.size_ = made.allocation_.size();
  auto addresses = OwnedAddresses::of(gpu.driver(), gpu.driver().reserveAddresses(made.size_, gpu.granularity()));
  if (!addresses) return tl::unexpected(std::move(addresses).error());
  made.addresses_ = std::move(*addresses);
  made.address_ = made.addresses_.get().address;
  auto map = made.allocation_.mapAt(made.address_, accessors);
  if (!map) return tl::unexpected(std::move(map).error());
  made.map_ = std::move(*map);
  return made;
}

Status DeviceMemory::registerMapping() {
  auto registered = RegisteredHost::make(*gpu_, mapping_.data(), mapping_.size());
  if (!registered) return std::move(registered).error();
  registered_ = std::move(*registered);
  const auto address = registered_.addressFor(*gpu_);
  if (!address) return address.error();
  address_ = *address;
  size_ = mapping_.size();
  return {};
}

Result<DeviceMemory> DeviceMemory::onHost(const Gpu& gpu, Bytes bytes) {
  DeviceMemory made;
  made.gpu_ = &gpu;
  auto mapping = Mapping::shareable(gpu.roundUp(bytes));
  if (!mapping) return tl::unexpected(std::move(mapping).error());
  made.mapping_ = std::move(*mapping);
  if (Status status = made.registerMapping(); !status.ok()) return tl::unexpected(std::move(status));
  return made;
}

namespace {

/// A file that ends before its memory would end this process when it is touched.
Result<Mapping> mapFile(const ShareTicket& ticket, int fd) {
  struct stat file{};
  if (fstat(fd, &file) != 0) return fail(Code::SystemError, "look at a file of another process: {}", std::strerror(errno));
  if (!S_ISREG(file.st_mode) || ticket.bytes == 0 || ticket.offset != 0 || ticket.bytes != static_cast<uint64_t>(file.st_size))
    return fail(Code::InvalidArgument, "host memory of another process is said to have {} bytes from {} on, and its file has {}",
                ticket.bytes, ticket.offset, file.st_size);
  return Mapping::ofFile(fd, 0, Bytes(ticket.bytes));
}

}  // namespace

Result<DeviceMemory> DeviceMemory::open(const Gpu& gpu, const ShareTicket& ticket, int fd) {
  DeviceMemory opened;
  opened.gpu_ = &gpu;
  if (ticket.kind == ShareKind::HostFile) {
    auto mapping = mapFile(ticket, fd);
    if (!mapping) return tl::unexpected(std::move(mapping).error());
    opened.mapping_ = std::move(*mapping);
    if (Status status = opened.registerMapping(); !status.ok()) return tl::unexpected(std::move(status));
    return opened;
  }
  if (ticket.kind == ShareKind::LegacyIpc) {
    const auto scope = ContextScope::enter(gpu.context());
    if (!scope) return tl::unexpected(scope.error());
    IpcHandle handle;
    handle.bytes = ticket.handle;
    const auto address = gpu.driver().openIpc(handle);
    if (!address) return tl::unexpected(address.error());
    opened.plain_ = Plain::Opened;
    opened.plainAddress_ = *address;
    opened.address_ = *address + ticket.offset;
    opened.size_ = Bytes(ticket.bytes);
    return opened;
  }
  auto allocation = Allocation::import(gpu, ticket, fd);
  if (!allocation) return tl::unexpected(std::move(allocation).error());
  opened.allocation_ = std::move(*allocation);
  opened.size_ = opened.allocation_.size();
  auto addresses = OwnedAddresses::of(gpu.driver(), gpu.driver().reserveAddresses(opened.size_, gpu.granularity()));
  if (!addresses) return tl::unexpected(std::move(addresses).error());
  opened.addresses_ = std::move(*addresses);
  opened.address_ = opened.addresses_.get().address;
  const driver::cuda::Device reader[] = {gpu.device()};
  auto map = opened.allocation_.mapAt(opened.address_, reader);
  if (!map) return tl::unexpected(std::move(map).error());
  opened.map_ = std::move(*map);
  return opened;
}

Result<Shared> DeviceMemory::share(ShareKind kind) const {
  if (isVirtual()) return allocation_.share(kind);
  if (mapping_.fd() >= 0 && kind == ShareKind::HostFile) {
    Shared shared;
    shared.fd.reset(fcntl(mapping_.fd(), F_DUPFD_CLOEXEC, 0));
    if (!shared.fd) return fail(Code::SystemError, "duplicate the descriptor of host memory: {}", std::strerror(errno));
    shared.ticket.kind = kind;
    shared.ticket.bytes = size_.value;
    return shared;
  }
  if (plain_ != Plain::Own || kind != ShareKind::LegacyIpc)
    return fail(Code::InvalidUsage, "plain memory of device {} is shared by legacy IPC alone, and by its own process",
                gpu_ == nullptr ? -1 : gpu_->device());
  return shareLegacy(*gpu_, address_, size_);
}

ShareKind DeviceMemory::localKind() const {
  if (isVirtual()) return includes(allocation_.handles(), HandleType::PosixFd) ? ShareKind::PosixFd : ShareKind::None;
  if (mapping_.fd() >= 0) return ShareKind::HostFile;
  return plain_ == Plain::Own ? ShareKind::LegacyIpc : ShareKind::None;
}

Result<Shared> shareLegacy(const Gpu& gpu, driver::cuda::DevicePtr address, Bytes bytes) {
  const auto scope = ContextScope::enter(gpu.context());
  if (!scope) return tl::unexpected(scope.error());
  const auto range = gpu.driver().rangeOf(address);
  if (!range) return tl::unexpected(range.error());
  if (address - range->address > range->bytes.value || bytes.value > range->bytes.value - (address - range->address))
    return fail(Code::InvalidArgument, "{} bytes at {:#x} reach past the end of their allocation, {} bytes at {:#x}", bytes.value, address,
                range->bytes.value, range->address);
  const auto handle = gpu.driver().exportIpc(range->address);
  if (!handle) return tl::unexpected(handle.error());
  Shared shared;
  shared.ticket.kind = ShareKind::LegacyIpc;
  shared.ticket.bytes = bytes.value;
  shared.ticket.offset = address - range->address;
  shared.ticket.handle = handle->bytes;
  return shared;
}

}  // namespace tutti::memory
