#include "bootstrap/link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "bootstrap/asio.h"
#include "core/children.h"
#include "core/unique_fd.h"

namespace tutti::bootstrap {
namespace {

constexpr size_t kLeastRead = size_t{16} << 10;
constexpr std::chrono::seconds kFinishLimit(5);

constexpr std::string_view kDoesNotAnswer = "does not answer";
/// The kernel's words for a side that is not heard.
constexpr std::array kSilent{ETIMEDOUT, EHOSTUNREACH, EHOSTDOWN, ENETUNREACH, ENETDOWN};

void setOption(int fd, int level, int name, int value) { (void)setsockopt(fd, level, name, &value, sizeof value); }

}  // namespace

bool isSilence(const Status& cause) { return cause.text().find(kDoesNotAnswer) != std::string::npos; }

Result<Socket> openSocket(Reactor& reactor, int family) {
  UniqueFd fd = keptFromChildren(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail(Code::SystemError, "cannot open a socket: {}", std::strerror(errno));
  // The port that the system gives to a connection stays taken for a minute after it, for listeners too, unless both agree to share it.
  if (family != AF_UNIX) setOption(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  Socket socket(reactor.loop());
  asio::error_code problem;
  socket.assign(asio::generic::stream_protocol(family, 0), fd.get(), problem);
  if (problem) return fail(Code::SystemError, "cannot watch a socket: {}", problem.message());
  (void)fd.release();
  return socket;
}

void tuneSocket(int fd) {
  setOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  setOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  setOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  setOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  setOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  setOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 25'000);
}

Link::Link(Reactor& reactor, Socket socket, const SessionKeys& keys, std::string peer)
    : reactor_(reactor), socket_(std::move(socket)), sealer_(keys.sends), opener_(keys.receives), peer_(std::move(peer)) {
  if (reactor_.hold().ok()) hold_ = ReactorHold(reactor_);
}

Link::~Link() = default;

void Link::start(OnFrame onFrame, OnClosed onClosed) {
  onFrame_ = std::move(onFrame);
  onClosed_ = std::move(onClosed);
  read();
}

void Link::send(Kind kind, std::vector<std::byte> payload) {
  queuedBytes_.fetch_add(payload.size(), std::memory_order_relaxed);
  reactor_.post([self = shared_from_this(), kind, payload = std::move(payload)] {
    self->queuedBytes_.fetch_sub(payload.size(), std::memory_order_relaxed);
    if (!self->socket_ || self->isFinishing_ || self->isBroken_) return;
    self->out_.push_back(self->sealer_.seal(static_cast<uint8_t>(kind), payload));
    self->reactor_.countSent();
    self->queuedBytes_.fetch_add(self->out_.back().size(), std::memory_order_relaxed);
    if (self->underWay_ == 0) self->write();
  });
}

void Link::finish(std::shared_ptr<void> unsaid) {
  reactor_.post([self = shared_from_this(), unsaid = std::move(unsaid)]() mutable {
    if (!self->socket_ || self->isFinishing_) return;
    self->isFinishing_ = true;
    self->unsaid_ = std::move(unsaid);
    self->onFrame_ = nullptr;
    self->onClosed_ = nullptr;
    if (self->underWay_ == 0) self->sayEnd();
    const auto timer = std::make_shared<asio::steady_timer>(self->reactor_.loop(), kFinishLimit);
    timer->async_wait([timer, link = std::weak_ptr(self)](const asio::error_code&) {
      if (const auto late = link.lock()) late->release();
    });
  });
}

void Link::close() {
  reactor_.post([self = shared_from_this()] {
    self->onFrame_ = nullptr;
    self->onClosed_ = nullptr;
    self->release();
  });
}

void Link::setReading(bool isReading) {
  isReading_ = isReading;
  while (isReading_ && takeFrame()) {  // some may lie here although more is being read: start() in the middle of them has begun that
  }
  if (isReading_) read();
}

void Link::read() {
  if (hasReadUnderWay_) return;
  compact();
  if (!socket_) return;
  if (in_.size() - received_ < kLeastRead) in_.resize(std::max(received_ + kLeastRead, received_ * 2));  // grows with what has come
  hasReadUnderWay_ = true;
  socket_->async_read_some(asio::buffer(in_.data() + received_, in_.size() - received_),
                           [self = shared_from_this()](const asio::error_code& problem, size_t bytes) {
                             self->hasReadUnderWay_ = false;
                             if (problem)
                               self->end(self->whyGone(self->isBroken_ ? self->broken_ : problem));
                             else
                               self->onRead(bytes);
                           });
}

void Link::onRead(size_t bytes) {
  received_ += bytes;
  while (isReading_ && takeFrame()) {
  }
  if (isReading_) read();
}

/// Hands on the frame at the front of in_ if all of it is there.
bool Link::takeFrame() {
  const auto bytes = std::span(in_).subspan(begin_, received_ - begin_);
  if (!socket_ || bytes.size() < kLengthBytes) return false;
  const auto length = Opener::lengthOf(bytes.first<kLengthBytes>());
  if (!length) {
    end(error(Code::RemoteError, "{} sent a frame of no possible length", peer_));
    return false;
  }
  if (bytes.size() - kLengthBytes < *length) return false;
  begin_ += kLengthBytes + *length;
  const auto frame = opener_.open(bytes.subspan(kLengthBytes, *length));
  if (!frame) {
    end(error(Code::RemoteError, "{} sent a frame that it did not seal: somebody is on the line", peer_));
    return false;
  }
  reactor_.countReceived();
  if (const OnFrame handler = onFrame_) handler(static_cast<Kind>(frame->kind), frame->payload);
  return true;
}

/// Moves what is left of a frame to the front, and gives back what a long one took.
void Link::compact() {
  if (begin_ == 0) return;
  std::memmove(in_.data(), in_.data() + begin_, received_ - begin_);
  received_ -= begin_;
  begin_ = 0;
  if (received_ == 0 && in_.size() > 4 * kLeastRead) std::vector<std::byte>().swap(in_);
}

/// The other side reads to the end of what was sent, and closes: a close with bytes unread here would take them back.
void Link::sayEnd() {
  asio::error_code ignored;
  if (socket_) socket_->shutdown(Socket::shutdown_send, ignored);
  unsaid_.reset();
}

void Link::write() {
  if (!socket_) return;
  std::vector<asio::const_buffer> buffers;
  for (const std::vector<std::byte>& frame : out_) buffers.push_back(asio::buffer(frame));
  underWay_ = out_.size();
  asio::async_write(*socket_, buffers, [self = shared_from_this()](const asio::error_code& problem, size_t) {
    for (; self->underWay_ > 0; --self->underWay_) {
      self->queuedBytes_.fetch_sub(self->out_.front().size(), std::memory_order_relaxed);
      self->out_.pop_front();
    }
    // What the other side said before it went may lie here unread, and is what its end is known by.
    if (problem && self->hasReadUnderWay_) return self->giveUpWriting(problem);
    if (problem) return self->end(self->whyGone(problem));
    if (!self->out_.empty() && self->socket_) return self->write();
    if (self->isFinishing_) self->sayEnd();
  });
}

/// Reading comes to its end with what lies here already.
void Link::giveUpWriting(const asio::error_code& problem) {
  isBroken_ = true;
  broken_ = problem;
  for (const std::vector<std::byte>& frame : out_) queuedBytes_.fetch_sub(frame.size(), std::memory_order_relaxed);
  out_.clear();
  asio::error_code ignored;
  if (socket_) socket_->shutdown(Socket::shutdown_both, ignored);
}

Status Link::whyGone(const asio::error_code& problem) const {
  const bool isSilent =
      std::ranges::any_of(kSilent, [&](int number) { return problem == asio::error_code(number, asio::error::get_system_category()); });
  return error(Code::RemoteError, "{} {}: {}", peer_, isSilent ? kDoesNotAnswer : "is gone", problem.message());
}

void Link::end(const Status& cause) {
  const OnClosed handler = std::exchange(onClosed_, nullptr);
  onFrame_ = nullptr;
  release();
  if (handler) handler(cause);
}

void Link::release() {
  socket_.reset();
  hold_.reset();
  unsaid_.reset();
}

}  // namespace tutti::bootstrap
