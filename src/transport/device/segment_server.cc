#include "transport/device/segment_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "config/params.h"
#include "core/children.h"
#include "core/same_user.h"
#include "core/thread.h"
#include "core/unique_fd.h"
#include "observe/log.h"
#include "transport/device/segment_wire.h"

namespace tutti::transport::device {
namespace {

using SteadyClock = std::chrono::steady_clock;

/// How long it takes no client after the system could not give it one: no descriptor is left, and poll() would say at once that one waits.
constexpr std::chrono::milliseconds kPause{20};

Result<ProcessKey> makeKey() {
  ProcessKey key;
  if (getrandom(key.bytes.data(), key.bytes.size(), 0) != static_cast<ssize_t>(key.bytes.size()))
    return fail(Code::SystemError, "the system gives no random bytes: {}", std::strerror(errno));
  return key;
}

/// A thread with a socket. The thread alone touches all but what open() and the destructor do.
class Desk {
 public:
  static Result<std::unique_ptr<Desk>> open(const SegmentServer::Ask& ask);
  ~Desk();
  Desk(const Desk&) = delete;
  Desk& operator=(const Desk&) = delete;
  const ProcessKey& key() const { return key_; }

 private:
  struct Client {
    UniqueFd fd;
    SteadyClock::time_point deadline;
  };

  explicit Desk(const SegmentServer::Ask& ask) : ask_(ask) {}
  Status listen();
  Status startThread();
  void run();
  int waitMs() const;
  void serveClients();
  void acceptClients();
  void take(UniqueFd fd);
  bool serve(int fd);

  const SegmentServer::Ask& ask_;
  ProcessKey key_;
  UniqueFd stop_;
  UniqueFd socket_;
  std::vector<Client> clients_;  // by deadline
  std::vector<pollfd> polls_;    // stop_, socket_, clients_
  std::optional<SteadyClock::time_point> pausedUntil_;
  std::thread thread_;
};

Result<std::unique_ptr<Desk>> Desk::open(const SegmentServer::Ask& ask) {
  std::unique_ptr<Desk> desk(new Desk(ask));
  const auto key = makeKey();
  if (!key) return tl::unexpected(key.error());
  desk->key_ = *key;
  desk->clients_.reserve(SegmentServer::kMostClients);
  desk->polls_.reserve(SegmentServer::kMostClients + 2);
  Status status = desk->listen();
  if (status.ok()) status = desk->startThread();
  if (!status.ok()) return tl::unexpected(std::move(status).at("serve segments of scratch"));
  return desk;
}

Desk::~Desk() {
  if (!thread_.joinable()) return;
  (void)eventfd_write(stop_.get(), 1);
  thread_.join();
}

Status Desk::listen() {
  stop_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_) return error(Code::SystemError, "make an eventfd: {}", std::strerror(errno));
  socket_ = keptFromChildren(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const SegmentAddress address(key_);
  if (!socket_ || bind(socket_.get(), address.raw(), address.size()) != 0 || ::listen(socket_.get(), SOMAXCONN) != 0)
    return error(Code::SystemError, "make an abstract Unix socket: {}", std::strerror(errno));
  return {};
}

Status Desk::startThread() {
  const bool namesThreads = config::get<config::Param::SetThreadName>() != 0;
  auto started = tutti::startThread(namesThreads ? "tutti segments" : nullptr, "that hands out GPU memory", [this] { run(); });
  if (!started) return std::move(started).error();
  thread_ = std::move(*started);
  return {};
}

void Desk::run() {
  for (;;) {
    if (pausedUntil_ && SteadyClock::now() >= *pausedUntil_) pausedUntil_.reset();
    polls_.assign({{stop_.get(), POLLIN, 0}, {pausedUntil_ ? -1 : socket_.get(), POLLIN, 0}});
    for (const Client& client : clients_) polls_.push_back({client.fd.get(), POLLIN, 0});
    if (::poll(polls_.data(), polls_.size(), waitMs()) < 0) std::this_thread::sleep_for(kPause);  // the system has no memory
    if (polls_[0].revents != 0) return;
    serveClients();
    if (polls_[1].revents != 0) acceptClients();
  }
}

/// Until something has to be done that no descriptor tells of; -1: never.
int Desk::waitMs() const {
  std::optional<SteadyClock::time_point> next = pausedUntil_;
  if (!clients_.empty()) next = std::min(next.value_or(SteadyClock::time_point::max()), clients_.front().deadline);
  if (!next) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - SteadyClock::now());
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

void Desk::serveClients() {
  const auto now = SteadyClock::now();
  size_t kept = 0;
  for (size_t i = 0; i < clients_.size(); ++i) {
    Client& client = clients_[i];
    const bool isDone = polls_[i + 2].revents != 0 ? serve(client.fd.get()) : now >= client.deadline;
    if (isDone) continue;
    if (kept != i) clients_[kept] = std::move(client);
    ++kept;
  }
  clients_.resize(kept);
}

/// Not all of them at once, if they come without end: those who are here already have their turn.
void Desk::acceptClients() {
  for (size_t i = 0; i < SegmentServer::kMostClients; ++i) {
    UniqueFd fd = keptFromChildren(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      take(std::move(fd));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      pausedUntil_ = SteadyClock::now() + kPause;
      return;
    }
  }
}

void Desk::take(UniqueFd fd) {
  if (const Status status = checkSameUser(fd.get()); !status.ok()) {
    observe::info(observe::Subsys::P2p, "segments of scratch: {}", status.text());
    return;
  }
  if (serve(fd.get())) return;
  if (clients_.size() == SegmentServer::kMostClients) clients_.erase(clients_.begin());
  clients_.push_back({std::move(fd), SteadyClock::now() + SegmentServer::kPatience});
}

/// Whether the client is done with. An answer always fits into the buffer of a new socket, whether or not the client reads it.
bool Desk::serve(int fd) {
  SegmentRequest request;
  const Heard heard = receiveRequest(fd, &request);
  if (heard != Heard::Request) return heard == Heard::Nonsense;
  try {
    sendReply(fd, ask_(request.device, request.place, request.number));
  } catch (const std::exception& problem) {  // no memory: the client asks again until its limit
    observe::warn("segment {} of device {} is not given: {}", request.number, request.device, problem.what());
  }
  return true;
}

}  // namespace

/// What belongs to one process.
struct SegmentServer::Box {
  const pid_t pid = getpid();
  std::mutex mutex;            ///< protects `desk`; held while it is made
  std::unique_ptr<Desk> desk;  // null before start()
};

SegmentServer::SegmentServer(Ask ask) : ask_(std::move(ask)), box_(new Box) {}

SegmentServer::~SegmentServer() {
  Box* const own = box_.load(std::memory_order_acquire);
  if (own->pid == getpid()) delete own;  // else the parent's, whose thread is not here
}

/// In a forked child the parent's box is left where it is, and never looked at again.
SegmentServer::Box& SegmentServer::box() {
  Box* seen = box_.load(std::memory_order_acquire);
  if (seen->pid == getpid()) [[likely]]
    return *seen;
  auto fresh = std::make_unique<Box>();
  if (box_.compare_exchange_strong(seen, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
  return *seen;  // another thread was faster
}

Result<ProcessKey> SegmentServer::start() {
  Box& own = box();
  const std::lock_guard lock(own.mutex);
  if (own.desk == nullptr) {
    auto desk = Desk::open(ask_);
    if (!desk) return tl::unexpected(std::move(desk).error());
    own.desk = std::move(*desk);
  }
  return own.desk->key();
}

bool SegmentServer::isOwn(const ProcessKey& key) const {
  Box& own = *box_.load(std::memory_order_acquire);
  if (own.pid != getpid()) return false;
  const std::lock_guard lock(own.mutex);
  return own.desk != nullptr && own.desk->key() == key;
}

bool SegmentServer::serves() const {
  Box& own = *box_.load(std::memory_order_acquire);
  if (own.pid != getpid()) return false;
  const std::lock_guard lock(own.mutex);
  return own.desk != nullptr;
}

}  // namespace tutti::transport::device
