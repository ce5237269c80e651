// The connecting side: tries the addresses of an invitation until one proves to be the listener, then opens all streams to it.
//
// Owner: the engine's job, as net::Connecting. One thread.
// 1. Addresses are tried in order, the next one when the last has failed or was silent for a while; the first that proves itself wins.
//    Those that have failed earlier connections of the network come last.
// 2. When all have failed everything is tried again, settings.retryCount times, with growing pauses.
// 3. There is a connection when the listener's owner has accepted it: then its end is the end of a peer, not of a listener.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "core/unique_fd.h"
#include "transport/socket/handshake.h"
#include "transport/socket/outcomes.h"
#include "transport/socket/stream.h"
#include "transport/socket/wire.h"

namespace tutti::transport::socket {

/// One socket on its way through the handshake.
class Dial {
 public:
  /// `epoll`: told when to advance. `stream`: which of the connection's.
  Dial(const Invitation& invitation, const Address& address, uint16_t stream, const ConnectionId& connection);

  /// Ready: the listener proved itself and commit() may be called. Failed: see problem().
  Poll advance(int epoll, const Settings& settings);
  /// Sends our proof: the socket belongs to the connection now. None: see problem().
  UniqueFd commit();
  /// Empty: none so far.
  const std::string& problem() const { return problem_; }
  /// The same with the address.
  std::string problemText() const { return format("{}: {}", address_.text(), problem_); }
  /// The problem is this process's own: no other address helps.
  bool helpless() const { return helpless_; }
  const Address& address() const { return address_; }
  std::chrono::steady_clock::time_point began() const { return began_; }

 private:
  enum class State : uint8_t { Start, Connecting, AwaitChallenge, Proved, Failed };
  Poll start(int epoll, const Settings& settings);
  Poll finishConnect();
  Poll readChallenge();
  Poll giveUp(std::string why);

  const Invitation* invitation_;
  Address address_;
  Hello hello_;
  State state_ = State::Start;
  UniqueFd fd_;
  std::array<uint8_t, sizeof(Challenge)> received_{};
  size_t size_ = 0;
  std::string problem_;
  bool helpless_ = false;
  std::chrono::steady_clock::time_point began_;
};

class Connector final : public net::Connecting {
 public:
  static Result<std::unique_ptr<Connector>> create(const Invitation& invitation, uint32_t scope, const Settings& settings,
                                                   std::shared_ptr<Outcomes> outcomes);
  ~Connector() override;
  Result<std::unique_ptr<net::SendComm>> poll() override;
  std::span<const int> descriptors() const override { return {&descriptor_, 1}; }

 private:
  using Clock = std::chrono::steady_clock;

  Connector(const Invitation& invitation, const Settings& settings, std::shared_ptr<Outcomes> outcomes)
      : invitation_(invitation), settings_(settings), outcomes_(std::move(outcomes)) {}
  void startRound();
  /// Ready: stream 0 stands. Failed: all retries are used up.
  Poll findAddress();
  void noteOutcome(size_t taken) const;
  /// Everything again, after a pause. Failed: often enough.
  Poll retry();
  /// Nothing any more: the problem is our own.
  Poll stop();
  Poll openOthers();
  Poll awaitWelcome();
  Status failure() const;

  Invitation invitation_;
  const Settings settings_;
  const std::shared_ptr<Outcomes> outcomes_;
  UniqueFd epoll_;
  int descriptor_ = -1;
  std::vector<Dial> dials_;  ///< stream 0 to different addresses; then streams 1… to the one that won
  size_t nextAddress_ = 0;
  int32_t round_ = 0;
  Clock::time_point resumeAt_;
  ConnectionId connection_{};
  std::vector<UniqueFd> streams_;
  size_t present_ = 0;
  Frame welcome_;
  size_t welcomed_ = 0;  ///< bytes of it
  Address peer_;
  std::string problems_;
  bool helpless_ = false;
};

}  // namespace tutti::transport::socket
