// What carries messages between processes: devices, connections of one direction each, and requests on them.
//
// Owner: whoever chose the network (shared: listeners and connections keep no pointer to it that outlives it). Network: any thread.
// Listener, Connecting, SendComm, RecvComm: one thread at a time. An ncclNet plugin fits behind it with a thin layer.
// 1. No call blocks. What cannot be done now says Pending, and is asked again.
// 2. Messages arrive in the order in which they were sent; each is received by one irecv of the same tag and at least its size.
// 3. Memory of a message belongs to the comm from isend or irecv until test() said Ready or Failed, or the comm is destroyed.
// 4. After Failed the comm is good for nothing but status() and destruction, which closes it at once, and, where messages overtake each
//    other (RecvComm::overtakes), tests of those before the one that Failed.
// 5. A comm whose descriptors() are empty must be tested again and again; else a Pending that moved nothing waits for one of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/status.h"

namespace tutti::transport::net {

inline constexpr size_t kHandleBytes = 128;
inline constexpr int kMaxRequests = 32;  ///< outstanding on a comm

/// Where a listener can be reached. Secret: whoever holds it may connect. Travels out of band, over a channel that is authenticated.
struct Handle {
  std::array<std::byte, kHandleBytes> bytes{};
};

/// Whom connections are made for.
struct Use {
  static constexpr int32_t kNoClass = -1;
  uint64_t communicator = 0;         ///< a number that all its ranks have; 0: none in particular
  int32_t trafficClass = kNoClass;   ///< what its configuration says, handed on as it is; kNoClass: nothing
  friend bool operator==(const Use&, const Use&) = default;
};

/// Kinds of memory, as bits.
enum class MemoryKind : int32_t { Host = 1, Cuda = 2, DmaBuf = 4 };

struct Properties {
  static constexpr int kMaxMembers = 4;

  std::string name;
  std::string pciPath;               ///< sysfs path of the device; empty: none
  uint64_t guid = 0;                 ///< equal for the ports of one chip
  int32_t memoryKinds = 1;           ///< MemoryKind bits
  bool registrationIsGlobal = false; ///< a registration holds for all comms
  bool forceFlush = false;           ///< received data needs a flush before a GPU may read it
  int64_t speedMbps = 0;
  int32_t port = 0;
  float latencyUs = 0;
  int32_t maxComms = 0;
  int32_t maxReceives = 1;           ///< buffers that one irecv may take
  int32_t offloadType = 0;           ///< 0: the host drives it
  int32_t offloadVersion = 0;
  int32_t numMembers = 1;            ///< physical devices of a fused one
  std::array<int32_t, kMaxMembers> members{};
  uint64_t maxMessageBytes = 0;      ///< of a point-to-point message
  uint64_t maxCollectiveBytes = 0;
  int32_t maxMultiRequest = 1;
};

/// Ok, or what no device can be: for values that come from outside.
Status checkProperties(const Properties& properties);

/// A registration, and a message under way: opaque, null means none.
struct MemoryKey {
  void* token = nullptr;
};
struct Request {
  void* token = nullptr;
  explicit operator bool() const { return token != nullptr; }
};

struct OutMessage {
  const std::byte* data = nullptr;
  uint64_t bytes = 0;
  int32_t tag = 0;
  MemoryKey key;
};
struct InMessage {
  std::byte* data = nullptr;
  uint64_t capacity = 0;
  int32_t tag = 0;
  MemoryKey key;
};

/// What a test found. `moved`: bytes went over, so testing again soon is worth it.
struct Tested {
  Poll poll = Poll::Pending;
  bool moved = false;
};

/// One direction of a connection, seen from one side.
class Comm {
 public:
  Comm() = default;
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  virtual ~Comm();

  /// Whether messages must lie in registered memory.
  virtual bool needsRegistration() const { return false; }
  virtual Result<MemoryKey> registerMemory(void* data, uint64_t bytes, MemoryKind kind);
  virtual void deregisterMemory(MemoryKey key);

  /// Ready frees the request; `bytes`, when given, gets the size that was received.
  virtual Tested test(Request request, uint64_t* bytes) = 0;
  /// With nothing to test: Failed when the connection broke, Ready when the peer took its leave, else Pending.
  virtual Poll check() { return Poll::Pending; }
  /// Tells the peer that what follows is no failure. Before destruction, with no request outstanding.
  virtual void takeLeave() {}
  /// Why something Failed.
  virtual Status status() const = 0;
  /// Descriptors that become ready when a Pending may have ended. They do not change.
  virtual std::span<const int> descriptors() const { return {}; }
  /// Address of the other side, for messages to people.
  virtual std::string peerText() const = 0;
};

class SendComm : public Comm {
 public:
  /// How many messages one isend takes.
  virtual size_t maxGather() const { return 1; }
  /// Sends messages as if one after the other, as one request. Pending: nothing was taken.
  virtual Poll isend(std::span<const OutMessage> messages, Request* request) = 0;
  /// Whether data is on its way that the other side has not confirmed. Nothing: the network cannot tell.
  virtual std::optional<bool> isUnderWay() const { return std::nullopt; }
};

class RecvComm : public Comm {
 public:
  virtual Poll irecv(const InMessage& message, Request* request) = 0;
  /// Whether a message may be complete before one that was sent earlier, so that several are worth testing at a time. Then one that Failed
  /// says nothing of those before it: they are tested again, and may be Ready.
  virtual bool overtakes() const { return false; }
  /// An event of the descriptors has come: the next test looks, whatever the one before it found.
  virtual void expect() {}
  /// Makes received data visible to a device. A null request: nothing to do.
  virtual Poll iflush(const InMessage& message, Request* request);
};

class Listener {
 public:
  Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  virtual ~Listener();
  virtual const Handle& handle() const = 0;
  /// The next connection; null: none yet.
  virtual Result<std::unique_ptr<RecvComm>> accept() = 0;
};

class Connecting {
 public:
  Connecting() = default;
  Connecting(const Connecting&) = delete;
  Connecting& operator=(const Connecting&) = delete;
  virtual ~Connecting();
  /// The connection, once; null: not yet.
  virtual Result<std::unique_ptr<SendComm>> poll() = 0;
  virtual std::span<const int> descriptors() const { return {}; }
};

class Network {
 public:
  Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  virtual ~Network();
  virtual std::string_view name() const = 0;
  virtual int32_t devices() const = 0;
  virtual Result<Properties> properties(int32_t device) const = 0;
  /// The same network, with the same devices, for the connections of one communicator. Null: this one serves all of them.
  virtual Result<std::shared_ptr<Network>> forCommunicator(const Use& use);
  virtual Result<std::unique_ptr<Listener>> listen(int32_t device) = 0;
  virtual Result<std::unique_ptr<Connecting>> connect(int32_t device, const Handle& handle) = 0;
  /// Descriptors that become ready when an accept of any listener may have ended; empty: accept must be called again and again.
  virtual std::span<const int> acceptDescriptors() const { return {}; }
  /// Writes to the log what came up in the calls above, which write nothing. Any thread, now and then; not in a pass of an engine.
  virtual void speak() {}
};

}  // namespace tutti::transport::net
