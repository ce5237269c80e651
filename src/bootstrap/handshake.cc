#include "bootstrap/handshake.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "bootstrap/asio.h"

namespace tutti::bootstrap {
namespace {

constexpr std::chrono::milliseconds kFullPause(5);

/// A connection to a port of this machine that nobody listens on may, by chance, start from that very port, and succeed.
bool isConnectedToItself(const Socket& socket) {
  asio::error_code ignored;
  const auto own = socket.local_endpoint(ignored);
  const auto other = socket.remote_endpoint(ignored);
  return own.protocol().family() != AF_UNIX && own == other;
}

}  // namespace

Handshake::Handshake(Reactor& reactor, Socket socket, Done done)
    : reactor_(reactor), socket_(std::move(socket)), timer_(reactor.loop()), pause_(reactor.loop()), done_(std::move(done)) {}

std::shared_ptr<Handshake> Handshake::connect(Reactor& reactor, const Target& target, std::chrono::milliseconds limit, Done done) {
  auto socket = openSocket(reactor, target.address.storage.ss_family);
  const bool isOpen = socket.has_value();
  Status problem = isOpen ? Status() : socket.error();
  auto self = std::make_shared<Handshake>(reactor, isOpen ? std::move(*socket) : Socket(reactor.loop()), std::move(done));
  self->own_ = Side::Connector;
  self->name_ = target.name;
  self->secret_ = target.secret;
  self->greeting_ = {target.purpose, target.topic, {}};
  fillRandom(self->greeting_.nonce);
  if (!isOpen) {
    reactor.post([self, problem] { self->fail(problem.code(), problem.text()); });
    return self;
  }
  self->setLimit(limit);
  self->dial(Endpoint(&target.address.storage, target.address.size));
  return self;
}

void Handshake::dial(const Endpoint& endpoint) {
  socket_.async_connect(endpoint, [self = shared_from_this(), endpoint](const asio::error_code& why) {
    if (why == asio::error::no_buffer_space && self->greeting_.purpose == Purpose::Share) return self->dialAgain(endpoint);
    if (why) return self->fail(Code::RemoteError, format("{} does not accept the connection: {}", self->name_, why.message()));
    self->isQueueFull_ = false;
    if (isConnectedToItself(self->socket_)) return self->fail(Code::RemoteError, format("nobody listens at {}", self->name_));
    if (self->greeting_.purpose != Purpose::Share) tuneSocket(self->socket_.native_handle());
    self->greet();
  });
}

/// Where the queue of a Unix socket is full, the kernel does not have those who come wait, as TCP does.
void Handshake::dialAgain(const Endpoint& endpoint) {
  isQueueFull_ = true;
  pause_.expires_after(kFullPause);
  pause_.async_wait([self = shared_from_this(), endpoint](const asio::error_code& why) {
    if (!why && self->done_) self->dial(endpoint);
  });
}

std::shared_ptr<Handshake> Handshake::accept(Reactor& reactor, Socket socket, FindSecret findSecret, std::chrono::milliseconds limit,
                                             Done done) {
  auto self = std::make_shared<Handshake>(reactor, std::move(socket), std::move(done));
  self->findSecret_ = std::move(findSecret);
  self->name_ = "a stranger";
  self->setLimit(limit);
  self->receive(Greeting::kBytes, &Handshake::onGreeting);
  return self;
}

void Handshake::setLimit(std::chrono::milliseconds limit) {
  timer_.expires_after(limit);
  timer_.async_wait([self = shared_from_this(), limit](const asio::error_code& why) {
    if (why) return;
    const std::string_view missing = self->isQueueFull_ ? "has had no place for another connection" : "has not proved itself";
    self->fail(Code::RemoteError, format("{} {} within {} ms", self->name_, missing, limit.count()));
  });
}

void Handshake::receive(size_t bytes, void (Handshake::*next)()) {
  asio::async_read(socket_, asio::buffer(room_.data(), bytes), [self = shared_from_this(), next](const asio::error_code& why, size_t) {
    if (why)
      return self->fail(Code::RemoteError, format("{} closed the connection before it had proved itself: {}", self->name_, why.message()));
    self->reactor_.countReceived();
    (self.get()->*next)();
  });
}

void Handshake::send(size_t bytes, void (Handshake::*next)()) {
  reactor_.countSent();
  asio::async_write(socket_, asio::buffer(room_.data(), bytes), [self = shared_from_this(), next](const asio::error_code& why, size_t) {
    if (why) return self->fail(Code::RemoteError, format("{} closed the connection: {}", self->name_, why.message()));
    (self.get()->*next)();
  });
}

void Handshake::greet() {
  const auto bytes = greeting_.encode();
  std::copy(bytes.begin(), bytes.end(), room_.begin());
  send(bytes.size(), &Handshake::awaitAnswer);
}

/// Connector: the acceptor's nonce and proof have come.
void Handshake::onAnswer() {
  Proof theirs;
  std::memcpy(acceptorNonce_.data(), room_.data(), sizeof(Nonce));
  std::memcpy(theirs.data(), room_.data() + sizeof(Nonce), sizeof(Proof));
  if (!equal(theirs, prove(secret_, Side::Acceptor, greeting_, acceptorNonce_)))
    return fail(Code::InvalidUsage, greeting_.purpose == Purpose::Root
                                        ? format("{} does not know this job's secret, or is no process of tutti", name_)
                                        : format("{} is another process, or one of another job", name_));
  const Proof own = prove(secret_, Side::Connector, greeting_, acceptorNonce_);
  std::memcpy(room_.data(), own.data(), own.size());
  send(own.size(), &Handshake::finish);
}

/// Acceptor: somebody has greeted.
void Handshake::onGreeting() {
  const auto greeting = Greeting::decode(std::span<const std::byte, 64>(room_).first<Greeting::kBytes>());
  if (!greeting) return fail(Code::RemoteError, "a stranger speaks another protocol");
  greeting_ = *greeting;
  const auto secret = findSecret_(greeting_.purpose, greeting_.topic);
  if (!secret) return fail(Code::RemoteError, "a stranger asks for a communicator that is not made here");
  secret_ = *secret;
  fillRandom(acceptorNonce_);
  const Proof own = prove(secret_, Side::Acceptor, greeting_, acceptorNonce_);
  std::memcpy(room_.data(), acceptorNonce_.data(), sizeof(Nonce));
  std::memcpy(room_.data() + sizeof(Nonce), own.data(), sizeof(Proof));
  send(kAnswerBytes, &Handshake::awaitProof);
}

void Handshake::onProof() {
  Proof theirs;
  std::memcpy(theirs.data(), room_.data(), sizeof(Proof));
  if (!equal(theirs, prove(secret_, Side::Connector, greeting_, acceptorNonce_)))
    return fail(Code::InvalidUsage, "a stranger does not know this job's secret");
  finish();
}

void Handshake::finish() {
  timer_.cancel();
  const Done done = std::exchange(done_, nullptr);
  if (!done) return;
  const SessionKeys keys = deriveKeys(secret_, own_, greeting_, acceptorNonce_);
  done(Established{std::move(socket_), keys, greeting_.purpose, greeting_.topic});
}

void Handshake::fail(Code code, std::string text) {
  const Done done = std::exchange(done_, nullptr);
  cancel();
  if (done) done(tl::unexpected(Status(code, std::move(text))));
}

void Handshake::cancel() {
  done_ = nullptr;
  timer_.cancel();
  pause_.cancel();
  asio::error_code ignored;
  socket_.close(ignored);
}

}  // namespace tutti::bootstrap
