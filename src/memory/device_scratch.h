// The library's own memory for a device, on it or on the host: banks, each of one owner, cut from segments that the pool adds when it must.
//
// Owner: one of each place for each device of the process (comm/process.h); banks go before it. Any thread; one lock, also while the driver
// allocates: banks are taken when something is set up, never when it runs.
// 1. A bank belongs to whoever took it until it is gone: no two owners ever share a byte. Its contents are undefined.
// 2. Segments are whole units of granularity, and all of a segment is charged to the budget: used parts to what they are used for, the
//    rest as idle. Before the budget refuses, segments that nobody uses are given back to the driver.
// 3. A segment stays where it is as long as a bank lies in it, so other ranks and processes map it once and find every bank of it.
// 4. Whoever gives a bank back knows that no peer touches it any more: the next owner may get it at once. Peers let go of their mappings of
//    its segment before that, or memory that no longer counts would still be there.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "memory/device_budget.h"
#include "memory/device_memory.h"
#include "memory/offsets.h"

namespace tutti::memory {

class ScratchPool;

/// What a pool's memory is: of its device, or of the host, which devices that cannot reach each other share. User: no pool's, but memory of
/// the user on the device, for what names memory of all sorts.
enum class Place : int32_t { Device, Host, User };

/// Where banks lie.
struct Segment {
  DeviceMemory memory;
  uint64_t number = 0;  ///< of the pool, never used twice: tells readers which one they have mapped already
  std::vector<driver::cuda::Device> readers;  ///< other devices of this process that may use it
  Offsets parts{Bytes(0)};
};

class [[nodiscard]] Bank {
 public:
  Bank() = default;
  Bank(Bank&& other) noexcept { *this = std::move(other); }
  Bank& operator=(Bank&& other) noexcept;
  ~Bank() { release(); }

  explicit operator bool() const { return pool_ != nullptr; }
  /// For the pool's device, in this process. A multiple of ScratchPool::kAlignment.
  driver::cuda::DevicePtr address() const { return segment_->memory.address() + offset_; }
  Bytes size() const { return size_; }
  /// The same byte for the host, where the memory is the host's; else null.
  std::byte* hostData() const { return segment_->memory.hostData() == nullptr ? nullptr : segment_->memory.hostData() + offset_; }
  Place place() const { return segment_->memory.hostData() == nullptr ? Place::Device : Place::Host; }
  /// What to share with others, and where the bank begins in it.
  const DeviceMemory& memory() const { return segment_->memory; }
  uint64_t segmentNumber() const { return segment_->number; }
  uint64_t offset() const { return offset_; }

 private:
  friend class ScratchPool;
  void release();
  ScratchPool* pool_ = nullptr;
  Segment* segment_ = nullptr;
  uint64_t offset_ = 0;
  Bytes size_;
  Purpose purpose_ = Purpose::Idle;
};

class ScratchPool {
 public:
  static constexpr Bytes kAlignment{512};
  static constexpr Bytes kWindowAlignment{8192};  ///< of windows: pairs of pages (exec/cuda/near_pages.h)
  /// A pool on the host is charged to a budget of its own, so that one of the device counts its memory alone.
  ScratchPool(const Gpu& gpu, Budget& budget, Place place = Place::Device) : gpu_(gpu), budget_(budget), place_(place) {}
  ScratchPool(const ScratchPool&) = delete;
  ScratchPool& operator=(const ScratchPool&) = delete;
  ~ScratchPool();

  /// At least `bytes` (> 0) that nobody else has. UnhandledCudaError: the budget or the device has no more; the text says what has the
  /// rest.
  Result<Bank> take(Purpose purpose, Bytes bytes);
  /// What another process of this host needs to map the segment of that number: kind PosixFd, for plain memory LegacyIpc, for
  /// memory of the host HostFile. Only while a
  /// bank lies in it, which is what makes it stay. InvalidArgument: no live segment has that number.
  Result<Shared> share(uint64_t number) const;
  /// Lets `reader`, a device of this process, use the segment, beside those that may already, and says where it lies in this process
  /// (memory of a device: there for all of them), until its last bank goes. InvalidArgument: no live segment has that number.
  Result<driver::cuda::DevicePtr> allow(uint64_t number, const Gpu& reader);
  /// Gives the driver back what nobody uses.
  void trim();
  size_t segments() const;
  const Gpu& gpu() const { return gpu_; }

 private:
  friend class Bank;
  Result<Segment*> find(uint64_t number) const;
  void give(Bank& bank);
  Status grow(Purpose purpose, Bytes bytes);
  void trimLocked();

  const Gpu& gpu_;
  Budget& budget_;
  const Place place_;
  mutable std::mutex mutex_;  ///< protects what follows, and the parts of segments
  std::vector<std::unique_ptr<Segment>> segments_;
  uint64_t lastNumber_ = 0;
};

}  // namespace tutti::memory
