#include "link.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace example {
namespace {

socklen_t fill(sockaddr_un* address, const std::string& name) {
  std::memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path + 1, name.data(), name.size());  // a leading zero: no file
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

bool later() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

Listening::~Listening() {
  if (fd_ >= 0) close(fd_);
}

int Listening::open(std::string* name) {
  static std::atomic<unsigned> count{0};
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  char text[64];
  std::snprintf(text, sizeof text, "nccl-net-example-%d-%u-%lx", getpid(), count.fetch_add(1), static_cast<unsigned long>(now.tv_nsec));
  *name = text;
  sockaddr_un address;
  const socklen_t length = fill(&address, *name);
  fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd_ < 0 || bind(fd_, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(fd_, 64) != 0) return kSystemError;
  return kSuccess;
}

int Listening::accept(Link** link) {
  *link = nullptr;
  const int fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return later() ? kSuccess : kSystemError;
  *link = new Link(fd, false);
  return kSuccess;
}

int Link::connect(const std::string& name, Link** link) {
  *link = nullptr;
  sockaddr_un address;
  const socklen_t length = fill(&address, name);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return kSystemError;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), length) != 0) {
    const bool busy = later();
    close(fd);
    return busy ? kSuccess : kRemoteError;
  }
  *link = new Link(fd, true);
  return kSuccess;
}

Link::~Link() {
  close(fd_);
  for (Request* request : live_) delete request;
}

Request* Link::begin(void* data, size_t bytes, int tag) {
  if (live_.size() >= kMostRequests) return nullptr;
  auto* const request = new Request{this, {bytes, tag, 0}, static_cast<std::byte*>(data), 0, false};
  queue_.push_back(request);
  live_.insert(request);
  return request;
}

void Link::forget(Request* request) {
  live_.erase(request);
  delete request;
}

int Link::send(Request& r) {
  while (r.moved < sizeof(Frame) + r.frame.bytes) {
    const bool inFrame = r.moved < sizeof(Frame);
    const std::byte* const at = inFrame ? reinterpret_cast<const std::byte*>(&r.frame) + r.moved : r.data + (r.moved - sizeof(Frame));
    const size_t rest = inFrame ? sizeof(Frame) - r.moved : sizeof(Frame) + r.frame.bytes - r.moved;
    const ssize_t sent = ::send(fd_, at, rest, MSG_NOSIGNAL);
    if (sent < 0) return later() ? kSuccess : kRemoteError;
    r.moved += static_cast<size_t>(sent);
  }
  r.done = true;
  return kSuccess;
}

/// `frame.bytes` is the room at first, and what came once the frame is there.
int Link::receive(Request& r) {
  Frame came = r.frame;
  const uint64_t room = r.frame.bytes;
  if (r.moved == 0) {
    const ssize_t got = recv(fd_, &came, sizeof came, MSG_PEEK);
    if (got == 0) return kRemoteError;
    if (got < 0) return later() ? kSuccess : kRemoteError;
    if (got < static_cast<ssize_t>(sizeof came)) return kSuccess;
    if (came.tag != r.frame.tag || came.bytes > room) return kInvalidArgument;
    if (recv(fd_, &r.frame, sizeof r.frame, 0) != static_cast<ssize_t>(sizeof r.frame)) return kSystemError;
    r.moved = sizeof(Frame);
  }
  while (r.moved < sizeof(Frame) + r.frame.bytes) {
    const ssize_t got = recv(fd_, r.data + (r.moved - sizeof(Frame)), sizeof(Frame) + r.frame.bytes - r.moved, 0);
    if (got == 0) return kRemoteError;
    if (got < 0) return later() ? kSuccess : kRemoteError;
    r.moved += static_cast<size_t>(got);
  }
  r.done = true;
  return kSuccess;
}

int Link::progress() {
  while (!queue_.empty()) {
    Request& oldest = *queue_.front();
    if (const int code = sends_ ? send(oldest) : receive(oldest); code != kSuccess) return code;
    if (!oldest.done) return kSuccess;
    queue_.pop_front();
  }
  return kSuccess;
}

}  // namespace example
