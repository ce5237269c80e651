// The first two round trips of a connection: each side proves that it knows the secret, before anything else is believed.
//
// Owner: whoever waits for it, and the reactor while it is under way. Only on the reactor's thread.
// 1. `done` runs once, with the connection or with why there is none; not after cancel().
// 2. It reads greetings of fixed sizes into fixed room, and lasts no longer than its limit, however slowly the other side speaks.
// 3. The acceptor says nothing to a greeting whose topic it does not know, and closes.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "bootstrap/address.h"
#include "bootstrap/asio.h"
#include "bootstrap/link.h"
#include "bootstrap/seal.h"

namespace tutti::bootstrap {

/// A connection whose sides know each other.
struct Established {
  Socket socket;
  SessionKeys keys;
  Purpose purpose = Purpose::Root;
  uint64_t topic = 0;
};

class Handshake : public std::enable_shared_from_this<Handshake> {
 public:
  using Done = std::function<void(Result<Established>)>;
  using FindSecret = std::function<std::optional<Secret>(Purpose, uint64_t topic)>;
  struct Target {
    SocketAddress address;
    std::string name;  ///< for texts
    Purpose purpose = Purpose::Root;
    uint64_t topic = 0;
    Secret secret{};
  };

  /// Connects and proves. InvalidUsage: the other side speaks the protocol but does not know the secret; RemoteError: anything else.
  static std::shared_ptr<Handshake> connect(Reactor& reactor, const Target& target, std::chrono::milliseconds limit, Done done);
  static std::shared_ptr<Handshake> accept(Reactor& reactor, Socket socket, FindSecret findSecret, std::chrono::milliseconds limit,
                                           Done done);
  void cancel();
  std::chrono::steady_clock::time_point since() const { return since_; }

  Handshake(Reactor& reactor, Socket socket, Done done);

 private:
  using Endpoint = asio::generic::stream_protocol::endpoint;
  void setLimit(std::chrono::milliseconds limit);
  void dial(const Endpoint& endpoint);
  void dialAgain(const Endpoint& endpoint);
  void greet();
  void awaitAnswer() { receive(kAnswerBytes, &Handshake::onAnswer); }
  void onAnswer();
  void onGreeting();
  void awaitProof() { receive(sizeof(Proof), &Handshake::onProof); }
  void onProof();
  void finish();
  void fail(Code code, std::string text);
  void receive(size_t bytes, void (Handshake::*next)());
  void send(size_t bytes, void (Handshake::*next)());

  Reactor& reactor_;
  Socket socket_;
  asio::steady_timer timer_;
  asio::steady_timer pause_;
  bool isQueueFull_ = false;  // of whom it wants to reach, the last time
  Done done_;
  FindSecret findSecret_;
  std::string name_;
  const std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  Side own_ = Side::Acceptor;
  Greeting greeting_;
  Nonce acceptorNonce_{};
  Secret secret_{};
  std::array<std::byte, 64> room_{};
};
static_assert(kAnswerBytes == 64 && Greeting::kBytes <= 64);

}  // namespace tutti::bootstrap
