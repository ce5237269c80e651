// Memory that a device addresses, own or of another process: of the device, virtual where it can, plain where it cannot; or of the host.
//
// Owner: the holder (move-only). Any thread, as any value; the Gpu must outlive it.
// 1. size() is what it takes on the device: whole units of granularity.
// 2. Plain memory is accessible to other devices of the process once allowPlainAccess() has been called for their contexts.
// 3. Work that uses it is over before it goes: freeing plain memory waits for the device, unmapping does not.
// 4. Memory of the host is a memfd, registered with the driver by every process that maps it: all devices of the process may use it.
#pragma once

#include "memory/device_allocation.h"
#include "memory/device_host.h"
#include "memory/mapping.h"

namespace tutti::memory {

class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&&) noexcept;
  DeviceMemory& operator=(DeviceMemory&&) noexcept;
  ~DeviceMemory();

  /// At least `bytes` (> 0) on `gpu`, not zeroed; `accessors`: the devices that may use it, if it is virtual.
  static Result<DeviceMemory> allocate(const Gpu& gpu, Bytes bytes, std::span<const driver::cuda::Device> accessors);
  /// At least `bytes` (> 0) of the host, zeroed, for all devices of the process; `gpu` is the one to which address() belongs.
  static Result<DeviceMemory> onHost(const Gpu& gpu, Bytes bytes);
  /// Memory of another process, mapped for `gpu`. `fd` comes with the ticket where its kind has one (hasDescriptor) and stays the
  /// caller's. InvalidArgument: the ticket says nonsense.
  static Result<DeviceMemory> open(const Gpu& gpu, const ShareTicket& ticket, int fd);

  driver::cuda::DevicePtr address() const { return address_; }
  Bytes size() const { return size_; }
  bool isVirtual() const { return static_cast<bool>(allocation_); }
  /// Where this process itself finds memory of the host; null for memory of a device.
  std::byte* hostData() const { return mapping_.data(); }
  /// Where another device of this process finds memory of the host.
  Result<driver::cuda::DevicePtr> hostAddressFor(const Gpu& reader) const { return registered_.addressFor(reader); }
  /// To map it elsewhere too; only when isVirtual().
  const Allocation& allocation() const { return allocation_; }
  /// Lets another process open() it. LegacyIpc for plain memory of this process, HostFile for memory of the host that was made here, the
  /// others for virtual memory.
  Result<Shared> share(ShareKind kind) const;
  /// The way between processes of one host: PosixFd, LegacyIpc, HostFile, or None.
  ShareKind localKind() const;

 private:
  enum class Plain : uint8_t { None, Own, Opened };
  void freePlain();
  Status registerMapping();

  const Gpu* gpu_ = nullptr;
  Allocation allocation_;
  driver::cuda::OwnedAddresses addresses_;
  driver::cuda::OwnedMap map_;
  driver::cuda::DevicePtr address_ = 0;
  driver::cuda::DevicePtr plainAddress_ = 0;  ///< what is to be freed or closed: begins before address_ if a ticket had an offset
  Bytes size_;
  Plain plain_ = Plain::None;
  Mapping mapping_;            // of the host
  RegisteredHost registered_;  // goes before it
};

/// Lets another process open [address, address + bytes) of plain memory of this process, whoever allocated it (cudaMalloc).
Result<Shared> shareLegacy(const Gpu& gpu, driver::cuda::DevicePtr address, Bytes bytes);

}  // namespace tutti::memory
