// How a process gives others of its host what they need to map segments of its devices' scratch, on devices or on the host: a thread that
// answers at a Unix socket.
//
// Owner: Segments (segments.h), one a process. Any thread may call what is here; `Ask` is called on the server's thread, never twice at
// once.
// 1. Thread and socket are there from the first start() until the server goes. The thread sleeps in poll(); nothing wakes it but a client.
// 2. Only processes of the same user are answered. A key is no secret: it tells processes apart, also one from an earlier one of its pid.
// 3. No client delays another: sockets do not block, whoever has not asked within kPatience is dropped, and where kMostClients have not
//    asked yet, the one that came first. Whoever asks at once is answered at once; who was dropped asks again (fetchSegment() does).
// 4. In a forked child the server is dead: start() there makes a new one with a new key. What the parent had open is left alone there, so
//    as long as a child that does not exec lives on, clients of a parent that has died wait for their limit instead of being refused.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <type_traits>

#include "core/status.h"
#include "memory/device_scratch.h"

namespace tutti::transport::device {

/// Random bytes that stand for one process.
struct ProcessKey {
  std::array<uint8_t, 16> bytes{};
  friend auto operator<=>(const ProcessKey&, const ProcessKey&) = default;
};

/// A segment of a ScratchPool among all processes of a host. Plain bytes, for memory that processes share.
struct SegmentName {
  ProcessKey process;
  int32_t device = 0;  ///< as `process` counts its devices
  memory::Place place = memory::Place::Device;
  uint64_t number = 0;  ///< memory::Bank::segmentNumber()
  friend auto operator<=>(const SegmentName&, const SegmentName&) = default;
};
static_assert(std::is_trivially_copyable_v<SegmentName> && sizeof(SegmentName) == 32);

class SegmentServer {
 public:
  using Ask = std::function<Result<memory::Shared>(int32_t device, memory::Place place, uint64_t number)>;
  static constexpr size_t kMostClients = 64;
  static constexpr std::chrono::milliseconds kPatience{500};

  explicit SegmentServer(Ask ask);
  /// Waits for the answer that is being given, if any.
  ~SegmentServer();
  SegmentServer(const SegmentServer&) = delete;
  SegmentServer& operator=(const SegmentServer&) = delete;

  /// Starts it if that is not done in this process; its key. SystemError: no socket or no thread; the next call tries again.
  Result<ProcessKey> start();
  /// Whether it serves, in this process, under that key.
  bool isOwn(const ProcessKey& key) const;
  bool serves() const;

 private:
  struct Box;
  Box& box();

  const Ask ask_;
  std::atomic<Box*> box_;  ///< replaced by the first start() in a forked child (acq_rel, pairs with itself)
};

/// What the process of `name` gives to map that segment; also when it is this one. Errors: what its Ask says; RemoteError when it is gone
/// or does not answer within `limit`; InvalidUsage when it belongs to another user; SystemError when this process has no socket or
/// descriptor left.
Result<memory::Shared> fetchSegment(const SegmentName& name, std::chrono::milliseconds limit);

}  // namespace tutti::transport::device
