// The CUDA driver as everybody uses it: each failure is a Status that names the call, what it was asked, the error's name and number.
//
// Owner: one for the process; tests make their own on a fake. It owns the Api. Any thread may call.
// 1. What a method is given back by (release…, free…, unmap…, destroy…, pop…) cannot fail for its caller: a failure goes to `lost`,
//    but for a driver that has shut down already (the process is ending), which has nothing left to give back.
// 2. Nothing here keeps state: what is alive belongs to the owners of owners.h.
// 3. A method that says "current" needs a context that is current in the calling thread (ContextScope).
// 4. A call that succeeds allocates nothing, so that queries and records may stand on a launch path.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/ids.h"
#include "core/status.h"
#include "core/unique_fd.h"
#include "driver/cuda/api.h"

namespace tutti::driver::cuda {

/// What a device is and can do; read once.
struct DeviceInfo {
  Device device = 0;
  std::string name;
  std::string pciBusId;  ///< "0000:1b:00.0", small letters
  Uuid uuid;
  Bytes memory;
  int32_t major = 0;  ///< compute capability
  int32_t minor = 0;
  int32_t multiprocessors = 0;
  bool virtualMemory = false;  ///< cuMem… works
  bool posixFd = false;        ///< … and is exported as file descriptors
  bool fabric = false;         ///< … and as fabric handles
  bool rdma = false;           ///< … and network cards may address it
  bool hostRegister = false;   ///< host memory can be mapped into the device
  bool wideStreamOps = false;  ///< its streams write words of 64 bits
};

struct Range {
  DevicePtr address = 0;
  Bytes bytes;
};

/// What a pointer points to, as far as the driver knows.
struct PointerInfo {
  MemoryType type = MemoryType::Unregistered;
  Device device = -1;
  bool managed = false;
  bool legacyIpc = false;                 ///< cuIpc can share it
  HandleType handles = HandleType::None;  ///< what its virtual memory may be exported as
  Range range;                            ///< the allocation that it lies in; of virtual memory the reservation: rangeOf()
};

struct CaptureInfo {
  CaptureStatus status = CaptureStatus::None;
  uint64_t id = 0;                   ///< of the capture, unique in the process; only when Active, as what follows
  Graph graph = nullptr;             ///< what is captured into
  std::span<const GraphNode> after;  ///< what the stream's next node will follow; gone with the next call on the stream
  bool isActive() const { return status == CaptureStatus::Active; }
};

/// Memory that stays on `device`; `handles`: what it may be exported as.
AllocationProp pinnedOn(Device device, HandleType handles, bool rdma);
/// Lets `device` read and write.
AccessDesc readWriteFrom(Device device);

class Driver {
 public:
  using Lost = std::function<void(const Status&)>;
  /// `lost` hears of failures that no caller can be told; any thread may call it, and it must not throw. Null: nobody hears.
  explicit Driver(std::unique_ptr<Api> api, Lost lost = nullptr) : api_(std::move(api)), lost_(std::move(lost)) {}

  // Devices. init() comes first, as often as one likes.
  Status init();
  Result<int32_t> version();  ///< 13000 is 13.0
  Result<int32_t> countDevices();
  Result<DeviceInfo> describe(int32_t ordinal);
  Result<Uuid> uuidOf(Device device);
  /// `unknown` is the answer of drivers that are too old to know the attribute; without it they fail.
  Result<int32_t> attribute(Attribute attribute, Device device, std::optional<int32_t> unknown = std::nullopt);
  Result<bool> canAccessPeer(Device device, Device peer);
  Result<int32_t> peerAttribute(PeerAttribute attribute, Device from, Device to);

  // Contexts.
  Result<Context> retainPrimary(Device device);
  void releasePrimary(Device device);
  Status pushContext(Context context);
  void popContext();
  Result<Context> currentContext();  ///< null when there is none
  Result<Device> currentDevice();
  /// The current context may address the memory of `peer` from now on; also when it could already.
  Status enablePeerAccess(Context peer);

  // Virtual memory.
  Result<Bytes> granularity(const AllocationProp& prop, Granularity option);
  Result<MemHandle> createMemory(Bytes bytes, const AllocationProp& prop);
  /// Nothing where devices, system or user do not have what `prop` asks for; other failures are failures.
  Result<std::optional<MemHandle>> createIfPermitted(Bytes bytes, const AllocationProp& prop);
  void releaseMemory(MemHandle handle);
  Result<Range> reserveAddresses(Bytes bytes, Bytes alignment);
  void freeAddresses(Range range);
  Status map(Range range, MemHandle handle);
  void unmap(Range range);
  Status setAccess(Range range, std::span<const AccessDesc> list);
  Result<UniqueFd> exportFd(MemHandle handle);
  Result<FabricHandle> exportFabric(MemHandle handle);
  Result<std::optional<FabricHandle>> exportFabricIfPermitted(MemHandle handle);
  Result<MemHandle> importFd(int fd);  ///< the descriptor stays the caller's
  Result<MemHandle> importFabric(FabricHandle handle);
  Result<MemHandle> retainHandle(DevicePtr address);  ///< of the memory that is mapped there
  Result<AllocationProp> propertiesOf(MemHandle handle);

  // Plain memory of the current context's device, and its legacy way between processes.
  Result<DevicePtr> allocate(Bytes bytes);
  void freePlain(DevicePtr address);
  struct MemoryLeft {
    Bytes free;
    Bytes total;
  };
  Result<MemoryLeft> memoryLeft();
  Result<IpcHandle> exportIpc(DevicePtr address);
  Result<DevicePtr> openIpc(const IpcHandle& handle);
  void closeIpc(DevicePtr address);

  // Host memory that devices address.
  Status registerHost(void* address, Bytes bytes);
  void unregisterHost(void* address);
  Result<DevicePtr> devicePointer(void* host);

  // Pointers.
  /// Type Unregistered, and nothing else, for memory that the driver does not know.
  Result<PointerInfo> describePointer(DevicePtr address);
  /// The number of the memory that is mapped there now, which no other has in this process; 0: none that the driver knows.
  Result<uint64_t> bufferOf(DevicePtr address);
  Result<Range> rangeOf(DevicePtr address);  ///< wants a current context, whichever

  // Copies, streams, events of the current context. A NULL stream is the legacy one.
  Status copy(DevicePtr to, DevicePtr from, Bytes bytes, Stream stream);
  /// As copy() does, by a call for rows that lie one behind the other: within a GPU it is slower, and leaves memory to other copies
  /// (docs/decisions/0051).
  Status copyInRows(DevicePtr to, DevicePtr from, Bytes bytes, Stream stream);
  Status fill(DevicePtr to, uint8_t value, Bytes bytes, Stream stream);
  /// One after the other, each behind what is on the stream: writes words, which are seen behind all that the stream has done before, and
  /// waits for some. At most kMostStreamOps; no multiprocessor is needed.
  Status operate(Stream stream, std::span<StreamOp> ops);
  Result<Stream> createStream();  ///< that does not wait for the legacy stream
  void destroyStream(Stream stream);
  Result<bool> isIdle(Stream stream);
  Status synchronize(Stream stream);
  Status wait(Stream stream, Event event);
  Result<CaptureInfo> captureInfo(Stream stream);
  /// Sets how this thread's calls stand to captures that are under way, and says how they stood.
  Result<CaptureMode> exchangeCaptureMode(CaptureMode mode);

  // Graphs, also while they are captured. A node that records or waits for an event does so whenever the graph is launched.
  Result<GraphNode> addWait(Graph graph, Event event);  ///< waits behind nothing
  Result<GraphNode> addRecord(Graph graph, std::span<const GraphNode> after, Event event);
  Status addDependencies(Graph graph, std::span<const GraphNode> from, GraphNode to);
  Status removeDependencies(Graph graph, std::span<const GraphNode> from, GraphNode to);
  /// The next node of a stream that is captured follows these, too.
  Status follow(Stream stream, std::span<const GraphNode> nodes);
  /// `destroy(what)` is called once, on any thread, when neither the graph nor any that was made of it is left, or runs; where this fails,
  /// before it returns. `destroy` may not call the driver.
  Status keepWith(Graph graph, void* what, HostFunction destroy);

  Result<Event> createEvent();  ///< without timing
  void destroyEvent(Event event);
  Status record(Event event, Stream stream);
  Result<bool> isOver(Event event);
  Status synchronize(Event event);

  /// For owners: an error on their way out.
  void tellLost(const Status& status) const {
    if (lost_) lost_(status);
  }
  Api& api() { return *api_; }

 private:
  template <class... Args>
  Status check(Error error, Call call, fmt::format_string<Args...> text, Args&&... args) {
    if (error == Error::Success) [[likely]]
      return {};
    return failure(error, call, formatArgs(text, fmt::make_format_args(args...)));
  }
  template <class Value, class... Args>
  Result<Value> checked(Error error, Value value, Call call, fmt::format_string<Args...> text, Args&&... args) {
    if (error == Error::Success) [[likely]]
      return value;
    return tl::unexpected(failure(error, call, formatArgs(text, fmt::make_format_args(args...))));
  }
  /// For what cannot fail for its caller.
  template <class... Args>
  void lose(Error error, Call call, fmt::format_string<Args...> text, Args&&... args) {
    if (error == Error::Success || error == Error::Deinitialized) [[likely]]
      return;
    tellLost(failure(error, call, formatArgs(text, fmt::make_format_args(args...))));
  }
  Status failure(Error error, Call call, const std::string& asked);

  std::unique_ptr<Api> api_;
  Lost lost_;
};

}  // namespace tutti::driver::cuda
