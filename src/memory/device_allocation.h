// Physical memory of a device without an address: made here, or by another rank or process, and mapped as often as one likes.
//
// Owner: the holder (move-only). Any thread, as any value; the Gpu must outlive it.
// 1. The memory lives as long as an Allocation of any process or a mapping holds it.
// 2. A device uses one address for one piece of memory within a kernel: two mappings of it on one device are not coherent before the kernel
//    ends (CUDA programming guide, "virtual aliasing"). Mappings on different devices are not affected.
// 3. A descriptor is duplicated by the kernel on its way (SCM_RIGHTS, core/descriptor_message.h, or pidfd_getfd); opening
//    /proc/PID/fd/N anew, which works for a memfd, gives no memory here.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

#include "core/unique_fd.h"
#include "memory/device.h"

namespace tutti::memory {

enum class ShareKind : uint8_t { None, PosixFd, Fabric, LegacyIpc, HostFile };
/// Whether a descriptor goes with the ticket.
constexpr bool hasDescriptor(ShareKind kind) { return kind == ShareKind::PosixFd || kind == ShareKind::HostFile; }

/// How another process gets at memory; plain bytes, which travel as they are.
struct ShareTicket {
  ShareKind kind = ShareKind::None;
  std::array<uint8_t, 7> reserved{};
  uint64_t bytes = 0;                ///< of the memory
  uint64_t offset = 0;               ///< LegacyIpc: where the memory begins in what the handle opens
  std::array<uint8_t, 64> handle{};  ///< Fabric, LegacyIpc
};
static_assert(std::is_trivially_copyable_v<ShareTicket> && sizeof(ShareTicket) == 88);

struct Shared {
  ShareTicket ticket;
  UniqueFd fd;  ///< where hasDescriptor(): goes with the ticket; the holder of the memory need not keep it
};

class Allocation {
 public:
  Allocation() = default;
  /// At least `bytes` on `gpu`, which has virtual memory; not zeroed.
  static Result<Allocation> create(const Gpu& gpu, Bytes bytes);
  /// Memory of another process, for use on `gpu`. `fd` comes with a ticket of kind PosixFd and stays the caller's.
  /// InvalidArgument: the ticket is of no kind that has an Allocation, or says nonsense.
  static Result<Allocation> import(const Gpu& gpu, const ShareTicket& ticket, int fd);
  /// The virtual memory that is mapped at `address` in this process, whoever made it.
  static Result<Allocation> at(const Gpu& gpu, driver::cuda::DevicePtr address);

  explicit operator bool() const { return static_cast<bool>(memory_); }
  driver::cuda::MemHandle handle() const { return memory_.get(); }
  Bytes size() const { return size_; }
  driver::cuda::HandleType handles() const { return handles_; }
  /// InvalidUsage when the memory was not made to be shared that way.
  Result<Shared> share(ShareKind kind) const;

  /// Maps it at `where`, which is reserved and as large as it, for the devices of `accessors`.
  Result<driver::cuda::OwnedMap> mapAt(driver::cuda::DevicePtr where, std::span<const driver::cuda::Device> accessors) const;

 private:
  driver::cuda::Driver* driver_ = nullptr;
  driver::cuda::OwnedMemory memory_;
  Bytes size_;
  driver::cuda::HandleType handles_ = driver::cuda::HandleType::None;
};

}  // namespace tutti::memory
