// The receiving side of a connection: few system calls for small messages, none of its own copies for large ones.
//
// Owner: a job of the engine. One thread at a time; helper threads, where there are any, touch only the memory given to them.
// 1. Nothing is read from the kernel unless a receive is posted: a receiver that does not want stops its sender.
// 2. A read asks for the rest of the current message and, behind it, for a stash of the next frames, in one call.
// 3. Frames are peeked at, and taken when there are some of them: taking makes the kernel send an acknowledgement, which costs as much
//    as a message, and an answer should not have to wait for it. They are taken sooner where nothing else comes for a while, or after
//    an event, which may mean more than them: the sender may wait for that word, and behind them the connection may have ended. So who
//    is asked only after events takes each. After a read that found less than it asked for, a few tests read nothing: who waits has the
//    time to answer first.
// 4. Destruction closes the sockets at once and returns when no helper writes memory of a message any more.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "core/unique_fd.h"
#include "transport/net/network.h"
#include "transport/socket/address.h"
#include "transport/socket/helpers.h"
#include "transport/socket/settings.h"
#include "transport/socket/stream.h"
#include "transport/socket/wire.h"

namespace tutti::transport::socket {

class RecvComm final : public net::RecvComm {
 public:
  static Result<std::unique_ptr<RecvComm>> create(std::vector<UniqueFd> sockets, const Address& peer, const Streams& streams,
                                                  const Settings& settings);

  ~RecvComm() override;
  Poll irecv(const net::InMessage& message, net::Request* request) override;
  net::Tested test(net::Request request, uint64_t* bytes) override;
  Poll check() override;
  bool overtakes() const override { return helpers_ != nullptr && helpers_->hasThreads(); }
  void expect() override {
    drained_ = 0;
    isTold_ = true;
  }
  void takeLeave() override;
  Status status() const override;
  std::span<const int> descriptors() const override { return descriptors_; }
  std::string peerText() const override { return peer_.text(); }

 private:
  struct Slot {
    net::InMessage message;
    uint64_t bytes = 0;                   ///< what came
    uint64_t received = 0;                ///< of it, over stream 0
    std::atomic<uint32_t> piecesLeft{0};  ///< helpers: counts down (release); pairs with the acquire in test()
    enum class State : uint8_t { Free, Posted, Arriving, Arrived } state = State::Free;
  };
  static constexpr size_t kStashBytes = 65536;  ///< what is shorter is seen whole, and taken after its answer: `bench_net 9 0 sizes`
  static constexpr int kUnread = 4;  ///< tests; the passes between a message and its answer are fewer: `bench_net 21 0 8`
  static constexpr size_t kMostPeeked = 400;  ///< less than an estimated segment of 536, from which on the kernel acknowledges by itself
  static constexpr int kPatience = 64;  ///< peeks: more than an answer to an answer takes to come, `bench_net 21 0 8`
  static constexpr uint64_t kReadBytes = uint64_t{1} << 20;

  RecvComm(std::vector<UniqueFd> sockets, const Address& peer, const Settings& settings);
  bool pump();
  bool readSocket();
  Transfer read(uint64_t direct, uint64_t* asked);
  Transfer peek(const iovec& tail);
  static Transfer seenNoMore();
  void takePeeked();
  void hasTaken();
  bool useStash();
  bool beginMessage(const Frame& frame);
  Slot* findPosted(int32_t tag);
  bool fail(Status why);
  bool failReceiving(int why);
  uint64_t wanted() const { return arriving_ == nullptr ? 0 : arriving_->bytes - arriving_->received; }
  bool broken() const { return !status_.ok() || (helpers_ && helpers_->error() != 0); }

  std::vector<UniqueFd> sockets_;
  std::vector<int> descriptors_;
  const Address peer_;
  std::array<Slot, net::kMaxRequests> slots_;
  uint64_t posted_ = 0;       ///< irecvs so far
  uint64_t matched_ = 0;      ///< irecvs before it have their message
  Slot* arriving_ = nullptr;  ///< whose bytes come next on stream 0
  size_t begin_ = 0;          ///< of what lies in the stash
  size_t end_ = 0;
  size_t peeked_ = 0;  ///< bytes before end_ that the kernel still has
  int patience_ = kPatience;  ///< so many more peeks may find nothing else
  bool isTold_ = false;       ///< an event has come that nobody has looked behind everything for
  int drained_ = 0;    ///< so many tests read nothing: the last read found all there was
  bool peerLeft_ = false;
  Status status_;
  std::array<std::byte, kStashBytes> stash_;
  std::unique_ptr<Helpers> helpers_;  ///< destroyed first
};

}  // namespace tutti::transport::socket
