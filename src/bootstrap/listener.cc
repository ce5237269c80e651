#include "bootstrap/listener.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "bootstrap/asio.h"
#include "core/children.h"
#include "observe/log.h"

namespace tutti::bootstrap {
namespace {

constexpr std::chrono::milliseconds kPause(50);
constexpr std::chrono::milliseconds kTurn(5);  // while the reserve goes from one to the next
constexpr int kBacklog = 4096;

bool isLack(int problem) { return problem == EMFILE || problem == ENFILE || problem == ENOBUFS || problem == ENOMEM; }

UniqueFd acceptAt(int door) { return keptFromChildren(accept4(door, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)); }

}  // namespace

Result<UniqueFd> listenAt(const SocketAddress& address, const std::string& name) {
  const int family = address.storage.ss_family;
  UniqueFd fd = keptFromChildren(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail(Code::SystemError, "cannot open a socket: {}", std::strerror(errno));
  const int on = 1;
  if (family != AF_UNIX) (void)setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6) (void)setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0 || listen(fd.get(), kBacklog) != 0)
    return fail(errno == EADDRINUSE ? Code::InvalidUsage : Code::SystemError, "cannot listen at {}: {}", name, std::strerror(errno));
  return fd;
}

Result<Address> listeningAddress(const UniqueFd& fd) {
  SocketAddress bound;
  bound.size = sizeof bound.storage;
  auto* const plain = reinterpret_cast<sockaddr*>(&bound.storage);
  if (getsockname(fd.get(), plain, &bound.size) != 0) return fail(Code::SystemError, "a socket has no address: {}", std::strerror(errno));
  const auto address = fromSocketAddress(*plain);
  if (!address) return fail(Code::InternalError, "a socket that listens is of no known family");
  return *address;
}

Listener::Listener(Reactor& reactor, std::vector<UniqueFd> fds, Handshake::FindSecret findSecret, OnEstablished onEstablished,
                   OnLack onLack)
    : reactor_(reactor),
      fds_(std::move(fds)),
      findSecret_(std::move(findSecret)),
      onEstablished_(std::move(onEstablished)),
      onLack_(std::move(onLack)) {
  (void)reserve();
}

void Listener::start() {
  pause_ = std::make_unique<asio::steady_timer>(reactor_.loop());
  for (UniqueFd& fd : fds_) {
    asio::posix::stream_descriptor descriptor(reactor_.loop());
    asio::error_code problem;
    descriptor.assign(fd.get(), problem);
    if (problem) {
      observe::warn("bootstrap: cannot watch a socket that listens: {}", problem.message());
      continue;
    }
    (void)fd.release();
    doors_.emplace_back(std::move(descriptor));
  }
  fds_.clear();
  for (size_t door = 0; door < doors_.size(); ++door) wait(door);
}

void Listener::close() {
  findSecret_ = nullptr;
  onEstablished_ = nullptr;
  onLack_ = nullptr;
  reserve_ = {};
  sayDropped();
  fds_.clear();
  doors_.clear();
  pause_.reset();
  for (const auto& pending : std::exchange(order_, {})) {
    if (const auto handshake = pending.lock()) handshake->cancel();
  }
}

void Listener::wait(size_t door) {
  if (std::exchange(doors_[door].isWaiting, true)) return;
  doors_[door].descriptor.async_wait(asio::posix::stream_descriptor::wait_read,
                                     [self = shared_from_this(), door](const asio::error_code& why) {
                                       if (door >= self->doors_.size()) return;
                                       self->doors_[door].isWaiting = false;
                                       if (!why) self->acceptAll(door);
                                     });
}

void Listener::acceptAll(size_t door) {
  constexpr int kBatch = 64;  // then others on the thread have their turn
  for (int i = 0; i < kBatch; ++i) {
    if (!makeRoom()) return resumeLater();
    UniqueFd fd = acceptAt(doors_[door].descriptor.native_handle());
    const int problem = fd ? 0 : errno;
    if (isLack(problem)) {
      if (!somebodyWaits(door)) break;  // the system looks for a descriptor first
      if (!mayGiveReserve(problem)) return resumeLater();
      reserve_ = {};
      fd = acceptAt(doors_[door].descriptor.native_handle());
    } else if (reserve()) {
      lackSince_.reset();
      lack_ = {};
    }
    if (fd) takeIn(std::move(fd));
    if (problem == EAGAIN) break;
    // Any other error is of the one connection that was next, and gone with it
  }
  if (!reserve_) resumeLater();
  wait(door);
}

bool Listener::isAwaited() {
  bool isAwaited = pending_ > 0;
  for (size_t door = 0; door < doors_.size(); ++door) isAwaited = isAwaited || somebodyWaits(door);
  return isAwaited;
}

bool Listener::somebodyWaits(size_t door) {
  pollfd seen{doors_[door].descriptor.native_handle(), POLLIN, 0};
  return poll(&seen, 1, 0) > 0;
}

/// When too many strangers wait, the oldest goes, unless it has only just come.
bool Listener::makeRoom() {
  while (!order_.empty() && (order_.front().expired() || pending_ >= kMostPending)) {
    const auto oldest = order_.front().lock();
    if (oldest && std::chrono::steady_clock::now() - oldest->since() < kSlow) return false;
    order_.pop_front();
    if (!oldest) continue;
    oldest->cancel();
    --pending_;
    report(error(Code::RemoteError, "a stranger was slow to prove itself while many others wait"));
  }
  return true;
}

void Listener::takeIn(UniqueFd fd) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  const int family = getsockname(fd.get(), reinterpret_cast<sockaddr*>(&peer), &size) == 0 ? peer.ss_family : AF_UNSPEC;
  Socket socket(reactor_.loop());
  asio::error_code problem;
  socket.assign(asio::generic::stream_protocol(family, 0), fd.get(), problem);
  if (problem) return report(error(Code::SystemError, "cannot watch a connection: {}", problem.message()));
  const int plain = fd.release();
  if (family != AF_UNIX) tuneSocket(plain);
  ++pending_;
  const auto handshake = Handshake::accept(reactor_, std::move(socket), findSecret_, kHandshakeLimit,
                                           [self = shared_from_this()](Result<Established> outcome) { self->onProof(std::move(outcome)); });
  order_.push_back(handshake);
}

void Listener::onProof(Result<Established> outcome) {
  --pending_;
  if (!onEstablished_) return;
  if (!outcome) return report(outcome.error());
  const Purpose purpose = outcome->purpose;
  const uint64_t topic = outcome->topic;
  onEstablished_(std::move(*outcome));
  if (!lack_.ok() && onLack_) onLack_(purpose, topic, lack_);
}

void Listener::resumeLater() {
  const bool isShort = !reserve_ && std::chrono::steady_clock::now() - lackedAt_ < kLackLimit;
  pause_->expires_after(isShort ? kTurn : kPause);
  pause_->async_wait([self = shared_from_this()](const asio::error_code& why) {
    if (why || !self->pause_) return;
    for (size_t door = 0; door < self->doors_.size(); ++door) self->wait(door);
    if (!self->reserve()) self->resumeLater();  // whoever had it has gone, or will
  });
}

/// Somebody waits, a member of the job perhaps, and no descriptor is left. Whether he is to be let in on the one in reserve.
bool Listener::mayGiveReserve(int problem) {
  const auto now = std::chrono::steady_clock::now();
  const bool isNew = !lackSince_ || now - lackedAt_ > 4 * kPause;  // nobody knocked in between: not one long lack
  if (isNew) lack_ = {};
  if (isNew || (lack_.ok() && pending_ > 0)) lackSince_ = now;
  lackedAt_ = now;
  if (now - warned_ >= std::chrono::seconds(10)) {
    warned_ = now;
    observe::warn("bootstrap: processes of the job have to wait for a connection: {}; raise the limit (ulimit -n), or make more unique ids",
                  std::strerror(problem));
  }
  if (lack_.ok()) {
    if (now - *lackSince_ < kLackLimit) return false;
    lack_ = error(Code::SystemError, "no descriptor is left for a connection of another process: {}; raise the limit (ulimit -n)",
                  std::strerror(problem));
  }
  return reserve();
}

/// Whether there is one, perhaps since now.
bool Listener::reserve() {
  if (!reserve_) reserve_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
  return static_cast<bool>(reserve_);
}

void Listener::report(const Status& why) {
  ++unreported_;
  latest_ = why.text();
  const auto now = std::chrono::steady_clock::now();
  if (now - reported_ < std::chrono::seconds(1)) return;
  reported_ = now;
  sayDropped();
}

void Listener::sayDropped() {
  if (unreported_ == 0) return;
  observe::info(observe::Subsys::Bootstrap, "Bootstrap: dropped {} connection{}: {}", unreported_,
                unreported_ == 1 ? "" : "s, the last because", latest_);
  unreported_ = 0;
}

}  // namespace tutti::bootstrap
