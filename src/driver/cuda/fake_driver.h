// What the fake driver knows and does; fake.h is the way in, which holds the lock.
//
// Owner: FakeApi. One thread at a time. Only fake*.cc include this.
#pragma once

#include <atomic>
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

/// As the driver: no two allocations or mappings ever have the same.
inline uint64_t nextBuffer() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

/// A range of addresses with memory behind it.
struct Region {
  uint64_t bytes = 0;
  BackingRef backing;  ///< null for registered host memory
  Device device = -1;
  std::map<Device, Access> access;  ///< of virtual memory
  uint64_t buffer = nextBuffer();
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
  Error beginCapture(Stream stream, CaptureMode mode);
  Error endCapture(Stream stream, Graph* graph);
  bool isCapturing(Stream stream) const { return captureOf_.contains(stream); }
  Error launchGraph(Graph graph, Stream stream);
  Error destroyGraph(Graph graph);
  FakeShape shape(Graph graph) const;
  /// Success, or why a capture that is under way forbids the call; that capture is broken then.
  Error permit(Call call);
  /// What lost its last reference; to be called without the lock.
  std::vector<std::function<void()>> takeDestroyed() { return std::exchange(destroyed_, {}); }
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
  struct Node {
    enum class Kind { Work, Wait, Record } kind = Kind::Work;
    std::set<GraphNode> after;
    FakeQueues::Work work;
    Event event = nullptr;
  };
  struct GraphState {
    std::map<GraphNode, Node> nodes;
    std::vector<UserObject> kept;  // as often as it holds a reference
  };
  struct Capture {
    CaptureStatus status = CaptureStatus::Active;
    CaptureMode mode = CaptureMode::Global;
    std::thread::id thread;  // that began it
    Stream origin = nullptr;
    Graph graph = nullptr;
  };
  struct Captured {
    uint64_t id = 0;
    std::vector<GraphNode> after;
  };
  struct Object {
    std::function<void()> destroy;
    size_t references = 0;
  };
  struct EventState {
    FakeQueues::Mark mark;
    Captured captured;  // where a capture has recorded it; id 0: none has
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
  Error breakCapture(uint64_t id, Error why);
  GraphNode addNode(Graph graph, Node node);
  Error addEventNode(GraphNode* made, Graph graph, const GraphNode* after, size_t count, Event event, Node::Kind kind);
  void releaseObject(UserObject object);
  bool follows(const GraphState& graph, GraphNode later, GraphNode earlier) const;
  /// Behind what its capture has of the stream.
  void capture(Stream stream, FakeQueues::Work work);
  /// Runs on the stream, behind what is there: `now`, at once where there is nothing.
  void give(Stream stream, FakeQueues::Work work, bool now);
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
  std::map<uint64_t, Capture> captures_;   // under way
  std::map<Stream, Captured> captureOf_;
  uint64_t lastCapture_ = 0;
  std::map<Graph, GraphState> graphs_;
  std::map<UserObject, Object> objects_;
  std::vector<std::function<void()>> destroyed_;
  std::map<std::thread::id, CaptureMode> modes_;
  std::map<Event, EventState> events_;
  uintptr_t lastObject_ = 0x10000;
  bool busy_ = false;
  FakeQueues::Mark wait_;
  FakeQueues queues_;  // goes first: its threads use memory
};

}  // namespace tutti::driver::cuda
