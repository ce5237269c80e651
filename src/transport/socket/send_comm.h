// The sending side of a connection: gathers what is queued and hands it to the kernel in as few calls as possible.
//
// Owner: a job of the engine. One thread at a time; helper threads, where there are any, touch only the messages given to them.
// 1. isend() queues; test() of any request moves bytes of all of them, in order.
// 2. A request is done when the kernel has taken all bytes of its messages.
// 3. Destruction closes the sockets at once and returns when no helper reads memory of a message any more.
#pragma once

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "core/unique_fd.h"
#include "transport/net/network.h"
#include "transport/socket/address.h"
#include "transport/socket/helpers.h"
#include "transport/socket/settings.h"
#include "transport/socket/wire.h"

namespace tutti::transport::socket {

class SendComm final : public net::SendComm {
 public:
  static constexpr size_t kGather = 2;

  static Result<std::unique_ptr<SendComm>> create(std::vector<UniqueFd> sockets, const Address& peer, const Streams& streams,
                                                  const Settings& settings);

  size_t maxGather() const override { return kGather; }
  Poll isend(std::span<const net::OutMessage> messages, net::Request* request) override;
  net::Tested test(net::Request request, uint64_t* bytes) override;
  std::optional<bool> isUnderWay() const override;
  Poll check() override;
  void takeLeave() override;
  Status status() const override;
  std::span<const int> descriptors() const override { return descriptors_; }
  std::string peerText() const override { return peer_.text(); }

 private:
  /// One isend: its frames and messages, as the kernel gets them.
  struct Slot {
    std::array<Frame, kGather> frames;
    std::array<iovec, 2 * kGather> parts;
    size_t numParts = 0;
    uint64_t bytes = 0;                                       ///< of the messages
    std::array<std::atomic<uint32_t>, kGather> piecesLeft{};  ///< helpers count down (release); pairs with the acquire in test()
    uint64_t number = 0;                                      ///< which isend it is
    bool taken = false;
  };
  static constexpr size_t kBatchParts = 64;
  static constexpr uint64_t kBatchBytes = uint64_t{1} << 20;
  static constexpr size_t kFewBytes = 512;  ///< a header and three frames: `bench_net 21 0 8`

  SendComm(std::vector<UniqueFd> sockets, const Address& peer, const Settings& settings);
  bool pump();
  size_t gather(std::array<iovec, kBatchParts>& parts) const;
  static size_t flatten(std::array<iovec, kBatchParts>& parts, size_t count, std::span<std::byte, kFewBytes> room);
  void advance(uint64_t bytes);
  bool broken() const { return error_ != 0 || (helpers_ && helpers_->error() != 0); }

  std::vector<UniqueFd> sockets_;
  std::vector<int> descriptors_;
  const Address peer_;
  const Settings settings_;
  std::array<Slot, net::kMaxRequests> slots_;
  uint64_t queued_ = 0;   ///< isends so far
  uint64_t sending_ = 0;  ///< those that have left completely, as far as stream 0 goes
  size_t part_ = 0;       ///< within slot sending_: the part, and how much of it has left
  uint64_t offset_ = 0;
  int error_ = 0;  ///< errno; EPIPE when the peer ended the connection
  bool peerLeft_ = false;
  std::unique_ptr<Helpers> helpers_;  ///< destroyed first
};

}  // namespace tutti::transport::socket
