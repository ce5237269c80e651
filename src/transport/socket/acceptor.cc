#include "transport/socket/acceptor.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/children.h"
#include "core/format.h"
#include "observe/log.h"

namespace tutti::transport::socket {
namespace {

// What an event of the epoll set stands for: the eventfd, a listening socket by its place, or a pending one by its number.
constexpr uint64_t kCompleted = ~uint64_t{0};
constexpr uint64_t kPendingBit = uint64_t{1} << 62;

Status watch(int epoll, int fd, uint64_t what) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = what;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0) return Status();
  return error(Code::SystemError, "watch a socket: {}", errorText(errno));
}

}  // namespace

Result<std::shared_ptr<Acceptor>> Acceptor::create(const std::vector<LocalAddress>& addresses, const Settings& settings) {
  std::shared_ptr<Acceptor> acceptor(new Acceptor(addresses, settings));
  acceptor->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  acceptor->completed_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!acceptor->epoll_ || !acceptor->completed_) return fail(Code::SystemError, "make an epoll set: {}", errorText(errno));
  if (Status status = watch(acceptor->epoll_.get(), acceptor->completed_.get(), kCompleted); !status.ok()) return tl::unexpected(status);
  Status problem = error(Code::InvalidArgument, "no address to listen on");
  std::erase_if(acceptor->addresses_, [&](const LocalAddress& local) {
    Status status = acceptor->listenOn(local);
    if (status.ok()) return false;
    observe::info(observe::Subsys::Net, "NET/Socket : {}", status.text());
    problem = std::move(status);
    return true;
  });
  if (acceptor->addresses_.empty()) return tl::unexpected(std::move(problem));
  acceptor->stopListening();
  return acceptor;
}

Status Acceptor::listen() {
  Status problem;
  for (const LocalAddress& local : addresses_) {
    if (Status status = listenOn(local); !status.ok()) problem = std::move(status);
  }
  isListening_ = true;
  if (listening_.empty()) return problem;
  if (!problem.ok() && problem.text() != failure_) {
    failure_ = problem.text();
    saysFailure_ = true;
    hasWords_.store(true, std::memory_order_relaxed);
  }
  return Status();
}

/// With this they end also where a process that was forked from this one has them too.
void Acceptor::shutDown(const std::vector<UniqueFd>& streams) {
  for (const UniqueFd& stream : streams)
    if (stream) (void)shutdown(stream.get(), SHUT_RDWR);
}

/// Closing alone would leave a door open, and its event, where a process that was forked from this one has the same socket.
void Acceptor::stopListening() {
  for (const Listening& one : listening_) {
    (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, one.fd.get(), nullptr);
    (void)shutdown(one.fd.get(), SHUT_RDWR);
  }
  listening_.clear();
}

void Acceptor::forgetPending(std::map<uint64_t, Pending>::iterator who) {
  if (who->second.fd) {
    (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, who->second.fd.get(), nullptr);
    (void)shutdown(who->second.fd.get(), SHUT_RDWR);
  }
  pending_.erase(who);
}

Status Acceptor::listenOn(const LocalAddress& local) {
  Address address = local.address;
  address.setPort(0);
  UniqueFd fd = keptFromChildren(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return error(Code::SystemError, "open a socket: {}", errorText(errno));
  const int one = 1;
  if (address.isV6()) (void)setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
  if (bind(fd.get(), address.raw(), address.length()) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    return error(Code::SystemError, "listen on {} of {}: {}", address.text(), local.interface, errorText(errno));
  }
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return error(Code::SystemError, "ask for the port of {}: {}", address.text(), errorText(errno));
  }
  auto known = Address::of(reinterpret_cast<const sockaddr*>(&bound), length);
  if (!known) return std::move(known).error();
  TUTTI_TRY(watch(epoll_.get(), fd.get(), listening_.size()));
  listening_.push_back({std::move(fd), local.interface, *known});
  return Status();
}

std::vector<Address> Acceptor::addresses(std::string_view interface) const {
  const std::lock_guard lock(mutex_);
  std::vector<Address> found;
  for (const bool own : {true, false}) {
    for (const Listening& one : listening_) {
      if ((one.interface == interface) == own) found.push_back(one.address);
    }
  }
  return found;
}

Status Acceptor::open(uint64_t listenId, const Key& key, uint16_t streams) {
  const std::lock_guard lock(mutex_);
  if (doors_.empty()) TUTTI_TRY(listen());
  Door& door = doors_[listenId];
  door.key = key;
  door.streams = streams;
  return Status();
}

void Acceptor::close(uint64_t listenId) {
  const std::lock_guard lock(mutex_);
  const auto found = doors_.find(listenId);
  if (found == doors_.end()) return;
  Door& door = found->second;
  forget(door.key);
  for (const auto& [id, assembly] : door.assemblies) shutDown(assembly.streams);
  for (const Accepted& accepted : door.complete) shutDown(accepted.streams);
  doors_.erase(found);
  if (!doors_.empty()) return;
  stopListening();
  while (!pending_.empty()) forgetPending(pending_.begin());  // nobody is left whom they could want
}

Result<std::optional<Accepted>> Acceptor::take(uint64_t listenId) {
  const std::lock_guard lock(mutex_);
  Door& door = doors_[listenId];
  if (door.complete.empty()) {
    if (Status status = poll(); !status.ok()) return tl::unexpected(std::move(status));
  }
  if (door.complete.empty()) return std::optional<Accepted>();
  std::optional<Accepted> taken(std::move(door.complete.front()));
  door.complete.pop_front();
  return taken;
}

size_t Acceptor::pendingForTest() const {
  const std::lock_guard lock(mutex_);
  return pending_.size();
}

Status Acceptor::poll() {
  constexpr int kEvents = 64;
  epoll_event events[kEvents];
  int count = 0;
  if (!isListening_ && Clock::now() >= resumeAt_) setListening(true);
  do {
    count = epoll_wait(epoll_.get(), events, kEvents, 0);
    for (int i = 0; i < count; ++i) {
      const uint64_t what = events[i].data.u64;
      if (what == kCompleted) {
        eventfd_t ignored = 0;
        (void)eventfd_read(completed_.get(), &ignored);
      } else if ((what & kPendingBit) != 0) {
        advance(what & ~kPendingBit);
      } else {
        TUTTI_TRY(acceptAll(listening_[what].fd.get()));
      }
    }
  } while (count == kEvents);
  expire();
  return Status();
}

/// Too many wait, or descriptors ran out: the stranger that waits longest goes, unless all may just be on their way. Who has greeted a
/// listener that there is has the longer grace: only those who got a handle know its number. None: it is nobody's fault here.
Acceptor::Room Acceptor::makeRoom() {
  if (pending_.empty()) return Room::None;
  const Clock::time_point now = Clock::now();
  const auto slow = std::find_if(pending_.begin(), pending_.end(), [now](const auto& entry) {
    return now - entry.second.since >= (entry.second.challenged ? kGrace : kGraceOfSilent);
  });
  if (slow == pending_.end()) return Room::Later;
  report(slow->second.peer, "it was slow to prove itself while others wait");
  forgetPending(slow);
  return Room::Made;
}

void Acceptor::setListening(bool isListening) {
  isListening_ = isListening;
  resumeAt_ = Clock::now() + kPause;
  for (size_t i = 0; i < listening_.size(); ++i) {
    epoll_event event{};
    event.events = isListening ? uint32_t{EPOLLIN} : 0U;
    event.data.u64 = i;
    (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listening_[i].fd.get(), &event);
  }
}

Status Acceptor::acceptAll(int listener) {
  for (;;) {
    if (pending_.size() >= kMostPending && makeRoom() != Room::Made)
      return setListening(false), Status();  // they stay in the kernel's queue
    sockaddr_storage raw{};
    socklen_t length = sizeof raw;
    UniqueFd fd = keptFromChildren(accept4(listener, reinterpret_cast<sockaddr*>(&raw), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Status();
      if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO || errno == EPERM) continue;
      const int problem = errno;
      const bool scarce = problem == EMFILE || problem == ENFILE || problem == ENOBUFS || problem == ENOMEM;
      const Room room = scarce ? makeRoom() : Room::None;
      if (room == Room::Made) continue;
      if (room == Room::Later) return setListening(false), Status();
      return error(Code::SystemError, "accept a connection: {}", errorText(problem));
    }
    auto peer = Address::of(reinterpret_cast<const sockaddr*>(&raw), length);
    if (!peer) continue;
    tuneStream(fd.get(), settings_);
    const uint64_t id = nextPending_++;
    if (!watch(epoll_.get(), fd.get(), id | kPendingBit).ok()) continue;
    Pending& pending = pending_[id];
    pending.fd = std::move(fd);
    pending.peer = *peer;
    pending.since = Clock::now();
    pending.deadline = pending.since + std::chrono::milliseconds(settings_.handshakeTimeoutMs);
    advance(id);
  }
}

void Acceptor::advance(uint64_t pendingId) {
  const auto found = pending_.find(pendingId);
  if (found == pending_.end()) return;
  Step step = read(found->second);
  if (step == Step::Done) step = finish(found->second);
  if (step == Step::Wait) return;
  forgetPending(found);
}

/// Takes in what has come, up to the end of the proof: what follows it belongs to the connection.
Acceptor::Step Acceptor::read(Pending& pending) {
  for (;;) {
    const size_t wanted = pending.challenged ? pending.received.size() : sizeof(Hello);
    if (pending.size == wanted) {
      if (pending.challenged) return Step::Done;
      if (const Step step = challenge(pending); step != Step::Done) return step;
      continue;
    }
    const iovec part{pending.received.data() + pending.size, wanted - pending.size};
    const Transfer got = receiveSome(pending.fd.get(), &part, 1);
    if (got.wouldBlock) return Step::Wait;
    if (got.ended) return drop(pending, "it left before it had proved itself");
    if (got.error != 0) return drop(pending, errorText(got.error));
    pending.size += got.bytes;
  }
}

Acceptor::Step Acceptor::challenge(Pending& pending) {
  Hello hello;
  std::memcpy(&hello, pending.received.data(), sizeof hello);
  const auto door = doors_.find(hello.listenId);
  if (hello.magic != kHelloMagic) return drop(pending, "it speaks another protocol");
  if (door == doors_.end()) return drop(pending, "it asks for a listener that is not here");
  Challenge answer;
  fillRandom(pending.nonce);
  answer.nonce = pending.nonce;
  answer.proof = proveListener(door->second.key, hello, pending.nonce);
  const iovec part{&answer, sizeof answer};
  // An empty send buffer takes 64 bytes; where it does not, something is wrong with the socket.
  if (sendSome(pending.fd.get(), &part, 1).bytes != sizeof answer) return drop(pending, "it takes no data");
  pending.challenged = true;
  return Step::Done;
}

/// Checks the proof; from here on the Hello is believed. Always ends the pending entry.
Acceptor::Step Acceptor::finish(Pending& pending) {
  Hello hello;
  Proof proof;
  std::memcpy(&hello, pending.received.data(), sizeof hello);
  std::memcpy(proof.data(), pending.received.data() + sizeof hello, proof.size());
  const auto found = doors_.find(hello.listenId);
  if (found == doors_.end()) return drop(pending, "it asks for a listener that is not here any more");
  Door& door = found->second;
  if (!equal(proof, proveConnector(door.key, hello, pending.nonce))) return drop(pending, "it does not know the key");
  if (hello.streams != door.streams || hello.stream >= hello.streams) return drop(pending, "it claims streams that there are not");
  // Not watched any more: the descriptor lives on, so closing does not do it.
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, pending.fd.get(), nullptr);
  Assembly& assembly = door.assemblies[hello.connection];
  if (assembly.streams.empty()) {
    assembly.streams.resize(hello.streams);
    assembly.deadline = pending.deadline;
  }
  UniqueFd& place = assembly.streams[hello.stream];
  if (place) return drop(pending, "it claims a stream that is there");
  if (hello.stream == 0 || assembly.present == 0) assembly.peer = pending.peer;
  place = std::move(pending.fd);
  if (++assembly.present < assembly.streams.size()) return Step::Done;
  door.complete.push_back({std::move(assembly.streams), assembly.peer});
  door.assemblies.erase(hello.connection);
  (void)eventfd_write(completed_.get(), 1);
  return Step::Done;
}

void Acceptor::expire() {
  constexpr std::chrono::milliseconds kInterval{50};  // every listener calls poll(): one look for all of them
  const Clock::time_point now = Clock::now();
  if (now < nextExpiry_) return;
  nextExpiry_ = now + kInterval;
  while (!pending_.empty() && pending_.begin()->second.deadline <= now) {
    report(pending_.begin()->second.peer, "it did not prove itself in time");
    forgetPending(pending_.begin());
  }
  for (auto& [id, door] : doors_) {
    std::erase_if(door.assemblies, [&](const auto& entry) {
      if (entry.second.deadline > now) return false;
      report(entry.second.peer, "not all of its streams came in time");
      shutDown(entry.second.streams);
      return true;
    });
  }
}

Acceptor::Step Acceptor::drop(const Pending& pending, std::string_view why) {
  report(pending.peer, why);
  return Step::Drop;
}

void Acceptor::report(const Address& peer, std::string_view why) {
  ++unreported_;
  words_ = format("{}: {}", peer.text(), why);
  hasWords_.store(true, std::memory_order_relaxed);
}

void Acceptor::speak() {
  if (!hasWords_.load(std::memory_order_relaxed)) return;
  std::string words;
  std::string failure;
  int64_t dropped = 0;
  {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    if (std::exchange(saysFailure_, false)) failure = failure_;
    if (unreported_ > 0 && now - reported_ >= std::chrono::seconds(1)) {
      reported_ = now;
      dropped = std::exchange(unreported_, 0);
      words = std::exchange(words_, {});
    }
    hasWords_.store(unreported_ > 0, std::memory_order_relaxed);
  }
  if (!failure.empty()) observe::info(observe::Subsys::Init | observe::Subsys::Net, "NET/Socket : {}", failure);
  if (dropped == 0) return;
  observe::info(observe::Subsys::Init | observe::Subsys::Net, "NET/Socket : dropped {} connection{} from {}", dropped,
                dropped == 1 ? "" : "s, the last", words);
}

}  // namespace tutti::transport::socket
