// The job of a remote pipe's sender: reads the slots that a SendEnd fills, sends them, and frees them.
//
// Owner: its JobGroup. Under the engine's lock, but setHandle().
// 1. Of a slot nothing is read before `filled`; `freed` is advanced when the network has done with header and payload.
// 2. Messages go in order; at most kMaxRequests requests are under way.
// 3. What happens to memory passed by reference: the network reads it before `freed` or before the job is final, never after.
#pragma once

#include <array>
#include <optional>

#include "progress/job.h"
#include "progress/wire.h"
#include "transport/local/pipe.h"

namespace tutti::progress {

namespace net = transport::net;
namespace local = transport::local;

class SendJob final : public Job {
 public:
  SendJob(net::Network& network, int32_t device, const local::PipeView& pipe, Peer peer, ErrorLatch* latch);

  /// Where the receiver listens. Once, by any thread; the engine goes on from there.
  void setHandle(const net::Handle& handle);
  bool hasHandle() const { return hasHandle_.load(std::memory_order_acquire); }  // pairs with setHandle()
  bool receives() const override { return false; }
  /// Under the engine's lock: whether a message is on its way to a receiver that has asked for the pipe.
  bool isUnderWay() const;

 private:
  /// A request under way.
  struct Flight {
    net::Request request;
    net::MemoryKey key;       ///< of memory that was registered for this message alone
    bool registered = false;  ///< `key` is to be given back
    bool endsMessage = false;
  };
  static constexpr size_t kFlights = net::kMaxRequests;

  Poll connect() override;
  std::span<const int> setUpDescriptors() const override;
  Status start() override;
  Advance move() override;
  bool idle() const override { return landed_ == flown_ && !filled(); }
  bool reaches() const override { return connecting_ != nullptr; }
  net::Comm* comm() override { return comm_.get(); }
  void disconnect() override;

  bool filled() const;
  bool issue();
  bool beginMessage(const local::SlotHead& head);
  bool launch(std::span<const net::OutMessage> messages, bool endsMessage);
  bool land();
  Result<net::MemoryKey> keyFor(const std::byte* data, uint64_t bytes);

  net::Network& network_;
  const int32_t device_;
  const local::PipeView pipe_;
  std::atomic<bool> hasHandle_{false};  ///< setHandle (release); pairs with the acquire in connect()
  net::Handle handle_;
  std::unique_ptr<net::Connecting> connecting_;
  std::unique_ptr<net::SendComm> comm_;
  uint64_t pieceBytes_ = 0;

  uint64_t issued_ = 0;  ///< messages all of whose requests have been made
  uint64_t freed_ = 0;
  uint64_t offset_ = 0;        ///< of the message being issued: payload that has its request
  bool headerFlown_ = false;   ///< of the message being issued
  net::MemoryKey payloadKey_;  ///< likewise
  bool payloadRegistered_ = false;
  std::array<Flight, kFlights> flights_;
  uint64_t flown_ = 0;   ///< requests made
  uint64_t landed_ = 0;  ///< requests done
  std::array<Header, kFlights + 1> headers_;
  net::MemoryKey headersKey_;
  net::MemoryKey stagingKey_;
};

}  // namespace tutti::progress
