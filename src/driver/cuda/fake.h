// A CUDA driver without a GPU, for tests: devices with properties, and memory that is really mapped and really shared.
//
// Owner: the Driver that it is given to; a test keeps a plain pointer. Any thread; one lock around every call.
// 1. Memory of a device is a memfd. Addresses are addresses of this process, so a test reads through them what a device would read, but
//    only after setAccess; two processes share memory by descriptor, by fabric handle or by IPC handle, as with the real one.
// 2. Streams do at once what they are given, unless a test has enqueued work of its own: that runs on a thread, and whatever follows it on
//    the stream, or waits for it through an event, runs after it. Whose context is current, who may access what, what overlaps what is
//    checked as the driver does, when the call is made.
// 3. Everything alive is counted (alive()); a test that ends with an idle() fake has leaked nothing.
// 4. Captures are those of the driver: what would break one, a call that a capture forbids or work that waits for work outside, fails and
//    breaks it. Graphs run as a user launches them; their nodes record and wait for events then.
// 5. failAt(n) fails the nth call from then on, failNext(call) the next of its kind. A call that gives something back, or waits for work,
//    does it all the same, and then fails.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "core/ids.h"
#include "driver/cuda/api.h"

namespace tutti::driver::cuda {

class FakeDriver;

struct FakeOptions {
  int32_t devices = 2;
  Bytes memory{uint64_t{1} << 30};  ///< of each device
  Bytes granularity{uint64_t{2} << 20};
  int32_t version = 13000;
  bool virtualMemory = true;
  bool posixFd = true;
  bool fabric = false;
  bool fabricPermitted = true;  ///< false: the attribute is there, but the system does not let this process use it
  bool rdma = true;
  bool hostRegister = true;
  bool wideStreamOps = true;
  bool nvlink = true;  ///< false: peers have no native atomics
  /// Pairs of devices that cannot access each other, in either order. The braces let tests name only the members before it.
  std::set<std::pair<Device, Device>> cut{};  // NOLINT(readability-redundant-member-init)
  /// What the first stores in memory of the second does not arrive there, though the driver allows it: accessible() knows it. For whoever
  /// plays kernels: the fake itself moves no data between devices.
  std::set<std::pair<Device, Device>> lossy{};  // NOLINT(readability-redundant-member-init)
};

struct FakeCounts {
  size_t contexts = 0;  ///< retained, as often as they are
  size_t pushed = 0;    ///< current in any thread
  size_t handles = 0;   ///< references to physical memory
  size_t reservations = 0;
  size_t mappings = 0;
  size_t plain = 0;
  size_t opened = 0;  ///< by IPC
  size_t registered = 0;
  size_t streams = 0;
  size_t events = 0;
  size_t backings = 0;  ///< memfds held here
  size_t working = 0;   ///< streams with work that is not over
  size_t graphs = 0;
  size_t userObjects = 0;
  friend bool operator==(const FakeCounts&, const FakeCounts&) = default;
};

/// What a graph consists of.
struct FakeShape {
  size_t works = 0;    ///< what was enqueued, copied or filled
  size_t waits = 0;    ///< for events
  size_t records = 0;  ///< of events
  bool isChain = true;   ///< of any two works, one follows the other
  bool isFenced = true;  ///< every work follows every wait, and every record follows every work
  size_t mostEdges = 0;    ///< into one node
};

class FakeApi final : public Api {
 public:
  explicit FakeApi(FakeOptions options = {});
  ~FakeApi() override;

#define TUTTI_CUDA_CALL(name, symbol, version, parameters, arguments) Error name parameters override;
#include "driver/cuda/calls.def"
#undef TUTTI_CUDA_CALL

  /// The nth call from now on (1 is the next) fails with `error`; 0 takes that back. getErrorName counts for nothing.
  void failAt(size_t nth, Error error = Error::OutOfMemory);
  /// The next call of this kind fails, instead of whatever failAt() said.
  void failNext(Call call, Error error = Error::OutOfMemory);
  /// Calls since the last failAt() or failNext().
  size_t calls() const;
  /// Which call has been made to fail since then.
  std::optional<Call> failed() const;

  FakeCounts alive() const;
  bool idle() const { return alive() == FakeCounts{}; }
  Bytes used(Device device) const;
  /// Whether kernels of `device` may read and write all of it.
  bool accessible(Device device, DevicePtr address, Bytes bytes) const;

  /// Whether what the device of the current context stores there does not arrive (FakeOptions::lossy).
  bool losesAt(DevicePtr address) const;

  /// Calls of streamBatchMemOp of all fakes of the process.
  static uint64_t streamBatches();

  /// Puts work on a stream: it runs on a thread, when all before it is over. The stream's device is that of the current context where it is
  /// a default one. No lock is held while it runs; it may call what is here, but not wait for its own stream.
  Error enqueue(Stream stream, std::function<void()> work);

  // What a user does with captures and graphs.
  Error beginCapture(Stream stream, CaptureMode mode = CaptureMode::Global);
  Error endCapture(Stream stream, Graph* graph);
  bool isCapturing(Stream stream) const;
  /// Runs all nodes on the stream, one after the other.
  Error launchGraph(Graph graph, Stream stream);
  Error destroyGraph(Graph graph);
  FakeShape shape(Graph graph) const;
  /// While true, work given to streams counts as unfinished: queries say NotReady.
  void setBusy(bool busy);

 private:
  template <class Act>
  Error enter(Call call, const Act& act);
  /// What is to fail: the nth call, or the next of a kind.
  void plan(size_t nth, std::optional<Call> call, Error error);

  mutable std::mutex mutex_;  ///< protects what follows
  std::unique_ptr<FakeDriver> driver_;
  size_t calls_ = 0;
  size_t failAt_ = 0;
  std::optional<Call> failNext_;
  Error failWith_ = Error::Success;
  std::optional<Call> failed_;
};

}  // namespace tutti::driver::cuda
