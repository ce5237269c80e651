// The job of a remote pipe's receiver: receives messages into the slots that a RecvEnd reads.
//
// Owner: its JobGroup. Under the engine's lock.
// 1. A message is received only when its slot is free: never more than `slots` ahead of the reader's `freed`.
// 2. A payload goes where the reader offered room for it (transport/local/offer.h), else into the slot's staging space, else, when it is
//    longer than that, into a spill buffer, of which there are at most kSpills, so that what is held for a reader is bounded.
// 3. Nothing a peer says is used unchecked: a header that cannot be ends the job.
// 4. Messages are asked for in order, header and payload, and handed to the reader in order. Where the network may complete a later one
//    first, up to kAhead are under way at once, and as many as there are slots: else its streams would wait for the last of them after
//    each message.
#pragma once

#include <array>
#include <memory>

#include "memory/mapping.h"
#include "progress/job.h"
#include "progress/wire.h"
#include "transport/local/pipe.h"

namespace tutti::progress {

namespace net = transport::net;
namespace local = transport::local;

class RecvJob final : public Job {
 public:
  RecvJob(net::Network& network, int32_t device, std::unique_ptr<net::Listener> listener, const local::PipeView& pipe,
          uint64_t mostBytes, std::atomic<uint64_t>* heard, Peer peer, ErrorLatch* latch);
  bool receives() const override { return true; }
  /// Payload bytes that were received straight to where the reader wanted them.
  uint64_t offeredBytesForTest() const { return offeredBytes_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kSpills = 2;
  static constexpr size_t kPieces = 8;  ///< requests for pieces at a time
  static constexpr size_t kAhead = 8;   ///< messages under way at once, where there are as many slots
  static constexpr int kMostMessages = 64;  ///< in one move, so that others get their turn
  /// What is shorter is copied sooner than its place is registered.
  static constexpr uint64_t kLeastRegistered = uint64_t{1} << 20;

  struct Spill {
    memory::Mapping memory;
    uint64_t number = 0;  ///< the message in it
  };
  struct Piece {
    net::Request request;
    uint64_t bytes = 0;
  };
  /// One whose header has come, and whose payload has a place.
  struct Message {
    std::byte* target = nullptr;  ///< null: the payload is in the header
    net::MemoryKey key;
    bool isRegistered = false;  ///< `key` is to be given back
    uint64_t posted = 0;        ///< of the payload, in bytes
    uint64_t done = 0;
  };

  void onEvent() override;
  Poll connect() override;
  Status start() override;
  Advance move() override;
  bool idle() const override { return begun_ == received_ && !hasHeader_; }
  net::Comm* comm() override { return comm_.get(); }
  void disconnect() override;

  bool step();
  bool land();
  bool goAhead();
  bool postHeader();
  bool readHeader();
  bool checkHeader(const Header& header);
  bool place();
  Status registerPlace(Message& message, uint64_t bytes);
  std::byte* spillFor(uint64_t bytes);
  bool postPieces(Message& message, const Header& came);
  void publish();
  void lookForLeave(bool wasPoked);
  Poll test(net::Request request, uint64_t* bytes, bool isAhead = false);
  uint64_t freed() const { return pipe_.freed->value.load(std::memory_order_acquire); }  // pairs with RecvEnd::release
  Header& header(uint64_t number) { return headers_[number % headers_.size()]; }
  Message& message(uint64_t number) { return messages_[number % kAhead]; }
  local::SlotHead& head() const { return pipe_.head(received_); }

  net::Network& network_;
  const int32_t device_;
  std::unique_ptr<net::Listener> listener_;
  const local::PipeView pipe_;
  const uint64_t mostBytes_;  ///< a longer message is refused
  std::atomic<uint64_t>* const heard_;  ///< gets the signature of each message; may be null
  uint64_t mostPieceBytes_ = 0;
  std::unique_ptr<net::RecvComm> comm_;

  uint64_t mostAhead_ = 1;      ///< messages under way at once
  uint64_t received_ = 0;       ///< messages published
  uint64_t begun_ = 0;          ///< messages whose payload has a place
  uint64_t headersPosted_ = 0;  ///< at most one more than begun_
  bool hasHeader_ = false;      ///< that of message begun_ has come
  bool isRefused_ = false;      ///< the network does not take the place that is offered for it
  std::array<Message, kAhead> messages_;  ///< from received_ to begun_
  std::array<Header, kAhead + 1> headers_;
  net::Request headerRequest_;  ///< the latest
  net::MemoryKey headersKey_;
  net::MemoryKey stagingKey_;

  // Of a step:
  bool tries_ = false;      ///< tests are made
  bool isPending_ = false;  ///< one of them found its request not done
  bool isMoving_ = false;   ///< though bytes of it came
  bool hasPosted_ = false;

  std::array<Piece, kPieces> pieces_;  ///< a ring: of the oldest message first
  uint64_t piecesPosted_ = 0;
  uint64_t piecesDone_ = 0;
  std::array<Spill, kSpills> spills_;
  std::atomic<uint64_t> offeredBytes_{0};  ///< the engine writes, tests read
};

}  // namespace tutti::progress
