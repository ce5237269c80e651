// What the fake driver knows and does; fake.h is the way in, which holds the lock.
//
// Owner: FakeApi. One thread at a time. Only fake*.cc include this.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "core/unique_fd.h"
#include "driver/cuda/fake.h"
#include "driver/cuda/fake_queues.h"

namespace tutti::driver::cuda {

/// Physical memory: a memfd with its properties written behind the last byte, so that whoever imports it can read them.
struct Backing {
  UniqueFd fd;
  uint64_t bytes = 0;
  AllocationProp prop;
  uint64_t* charged = nullptr;  ///< counts the bytes of its device; null for imported memory
  Backing() = default;
  Backing(const Backing&) = delete;
  Backing& operator=(const Backing&) = delete;
  ~Backing() {
    if (charged != nullptr) *charged -= bytes;
  }
};
using BackingRef = std::shared_ptr<Backing>;

/// A range of addresses with memory behind it.
struct Region {
  uint64_t bytes = 0;
  BackingRef backing;  ///< null for registered host memory
  Device device = -1;
  std::map<Device, Access> access;  ///< of virtual memory
};
using Regions = std::map<DevicePtr, Region>;

class FakeDriver {
 public:
  explicit FakeDriver(FakeOptions options);
  ~FakeDriver();

#define TUTTI_CUDA_CALL(name, symbol, version, parameters, arguments) Error name parameters;
#include "driver/cuda/calls.def"
#undef TUTTI_CUDA_CALL

  FakeCounts alive() const;
  Bytes used(Device device) const { return Bytes(used_[static_cast<size_t>(device)]); }
  bool loses(Device from, DevicePtr address) const;
  /// The device of the context that is current in this thread; -1 without one.
  Device current() const;
  bool accessible(Device device, DevicePtr address, uint64_t bytes) const;
  void setCapture(Stream stream, CaptureStatus status, uint64_t id) { captures_[stream] = {status, id}; }
  void setBusy(bool busy) { busy_ = busy; }
  Error enqueue(Stream stream, std::function<void()> work);
  /// What the call that has just been made waits for; to be waited for by its thread, which has let go of the lock.
  FakeQueues::Mark takeWait() { return std::exchange(wait_, {}); }
  const FakeQueues& queues() const { return queues_; }

 private:
  struct Handle {
    BackingRef backing;
    size_t references = 0;
  };
  struct Capture {
    CaptureStatus status = CaptureStatus::None;
    uint64_t id = 0;
  };

  bool isDevice(Device device) const { return device >= 0 && device < options_.devices; }
  bool canReach(Device from, Device to) const;
  bool isGranular(uint64_t bytes) const { return bytes != 0 && bytes % options_.granularity.value == 0; }
  Error makeBacking(uint64_t bytes, const AllocationProp& prop, BackingRef* backing);
  static BackingRef openBacking(int fd);
  MemHandle hold(BackingRef backing);
  Error mapAnywhere(const BackingRef& backing, DevicePtr* address) const;
  /// The region that holds all of the range; null when there is none, and then *touches says whether any begins or ends in it.
  static const Regions::value_type* find(const Regions& regions, DevicePtr address, uint64_t bytes);
  static bool touches(const Regions& regions, DevicePtr address, uint64_t bytes);
  Error checkCopy(DevicePtr address, uint64_t bytes, Device device) const;
  Error writeAttribute(void* value, PointerAttribute attribute, DevicePtr address) const;
  bool isStream(Stream stream) const;
  /// Of a stream that is one. The default ones are each device's, or each thread's, own.
  FakeQueues::Ref queueOf(Stream stream);

  const FakeOptions options_;
  bool initialised_ = false;
  std::vector<uint64_t> used_;    // by device; outlives the backings below
  std::vector<size_t> retained_;  // by device
  std::map<std::thread::id, std::vector<Context>> current_;
  std::set<std::pair<Device, Device>> peers_;  // first may access plain memory of second
  std::map<MemHandle, Handle> handles_;
  MemHandle lastHandle_ = 0x1000;
  std::map<DevicePtr, uint64_t> reservations_;  // bytes by address
  Regions mapped_;
  Regions plain_;
  Regions opened_;
  Regions registered_;
  std::map<Stream, FakeQueues::Ref> streams_;
  std::map<std::pair<Device, std::thread::id>, FakeQueues::Ref> defaults_;  // no thread: the legacy stream
  std::map<Stream, Capture> captures_;
  std::map<std::thread::id, CaptureMode> modes_;
  std::map<Event, FakeQueues::Mark> events_;
  uintptr_t lastObject_ = 0x10000;
  bool busy_ = false;
  FakeQueues::Mark wait_;
  FakeQueues queues_;  // goes first: its threads use memory
};

}  // namespace tutti::driver::cuda
