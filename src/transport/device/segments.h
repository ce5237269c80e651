// How the ranks of a process reach segments of scratch on any device of their host: of this process, or of another one.
//
// Owner: comm/process.h, one a process; its pools and Gpus outlive it, and everything reached. Any thread.
// 1. A segment of another process is fetched and mapped once for each reading device, and stays mapped as long as anybody holds a Reached
//    of it. One of a pool of this process has no mapping of its own: its address is good while a bank lies in it (device_scratch.h, 3).
//    Memory of the user is mapped like that of another process, so that no reader depends on what the user frees.
// 2. No lock is held while another process or the driver's mapping is waited for. Of threads that want the same segment for the same device
//    the first fetches it; the others wait for it and get what it gets, also its error. The next call after an error tries again.
// 3. Whoever reaches a segment lets go of it before its owner gives the bank back (device_scratch.h, 4).
// 4. A forked child has a server of its own (segment_server.h, 4). What the parent has reached is of no use there, as is its driver.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "memory/device_scratch.h"
#include "transport/device/published.h"
#include "transport/device/segment_server.h"

namespace tutti::transport::device {

class Reached {
 public:
  Reached() = default;
  explicit operator bool() const { return address_ != 0; }
  /// The segment's first byte, for the device that reaches it.
  driver::cuda::DevicePtr address() const { return address_; }
  /// Of a segment that is mapped for it.
  Bytes size() const { return mapped_ == nullptr ? Bytes(0) : mapped_->size(); }
  /// It goes by a call of the driver that waits for whatever runs on the device, and keeps other threads from launching meanwhile.
  bool goesSlowly() const { return mapped_ != nullptr && !mapped_->isVirtual(); }

 private:
  friend class Segments;
  explicit Reached(driver::cuda::DevicePtr address) : address_(address) {}
  explicit Reached(std::shared_ptr<const memory::DeviceMemory> mapped) : mapped_(std::move(mapped)), address_(mapped_->address()) {}

  std::shared_ptr<const memory::DeviceMemory> mapped_;  // null for a segment of this process
  driver::cuda::DevicePtr address_ = 0;
};

class Segments {
 public:
  /// A pool of a device of this process; null where there is none, whatever the numbers. Called by any thread.
  using Pools = std::function<memory::ScratchPool*(int32_t device, memory::Place place)>;
  static constexpr std::chrono::milliseconds kLimit{10'000};

  /// `limit`: for another process to answer.
  explicit Segments(Pools pools, std::chrono::milliseconds limit = kLimit);

  /// What this process is called in a SegmentName; starts the server.
  Result<ProcessKey> key() { return server_.start(); }
  /// The segment, for `reader`, a device of this process. Errors: InvalidArgument when there is no such segment; what fetchSegment() and
  /// the driver say.
  Result<Reached> reach(const memory::Gpu& reader, const SegmentName& name);

  /// Memory of the user: a segment of Place::User, by its number there.
  Published& published() { return published_; }
  bool serves() const { return server_.serves(); }
  /// How many segments of other processes are mapped, each counted for each reading device.
  size_t mapped() const;

 private:
  using Mapping = std::shared_ptr<const memory::DeviceMemory>;
  /// A thread fetches a segment; others may wait for it. Under mutex_.
  struct Attempt {
    std::condition_variable ended;
    bool isOver = false;
    Result<Mapping> outcome = fail(Code::InternalError, "a segment was not fetched to the end");
  };
  struct Entry {
    std::weak_ptr<const memory::DeviceMemory> mapping;
    std::shared_ptr<Attempt> attempt;  ///< null when nobody fetches it now
  };
  using Key = std::pair<SegmentName, driver::cuda::Device>;
  class Turn;

  Result<memory::Shared> give(int32_t device, memory::Place place, uint64_t number) const;
  Result<Reached> reachOwn(const memory::Gpu& reader, const SegmentName& name) const;
  Result<Mapping> fetch(const memory::Gpu& reader, const SegmentName& name) const;

  Published published_;
  const Pools pools_;
  const std::chrono::milliseconds limit_;
  mutable std::mutex mutex_;  ///< protects entries_
  std::map<Key, Entry> entries_;
  SegmentServer server_;  // goes first: its thread uses pools_
};

}  // namespace tutti::transport::device
