#include "transport/socket/stream.h"

#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "core/children.h"

namespace tutti::transport::socket {
namespace {

void setOption(int fd, int level, int name, int64_t value) {
  const int number = static_cast<int>(std::clamp<int64_t>(value, 0, std::numeric_limits<int>::max()));
  // What the kernel refuses costs speed, not correctness.
  (void)setsockopt(fd, level, name, &number, sizeof number);
}

msghdr messageOf(const iovec* parts, size_t count) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  return message;
}

}  // namespace

Transfer sendSome(int fd, const iovec* parts, size_t count) {
  Transfer done;
  const msghdr message = messageOf(parts, count);
  ssize_t sent = 0;
  do {
    sent = count == 1 ? send(fd, parts->iov_base, parts->iov_len, MSG_NOSIGNAL | MSG_DONTWAIT)
                      : sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) {
    done.bytes = static_cast<uint64_t>(sent);
  } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) {
    done.wouldBlock = true;
  } else {
    done.error = errno;
  }
  return done;
}

namespace {

Transfer outcome(ssize_t got) {
  Transfer done;
  if (got > 0) {
    done.bytes = static_cast<uint64_t>(got);
  } else if (got == 0) {
    done.ended = true;
  } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
    done.wouldBlock = true;
  } else {
    done.error = errno;
  }
  return done;
}

}  // namespace

Transfer receiveSome(int fd, const iovec* parts, size_t count) {
  msghdr message = messageOf(parts, count);
  ssize_t got = 0;
  do {
    got = count == 1 ? recv(fd, parts->iov_base, parts->iov_len, MSG_DONTWAIT) : recvmsg(fd, &message, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  return outcome(got);
}

Transfer peekSome(int fd, const iovec& part) {
  ssize_t got = 0;
  do {
    got = recv(fd, part.iov_base, part.iov_len, MSG_DONTWAIT | MSG_PEEK);
  } while (got < 0 && errno == EINTR);
  return outcome(got);
}

Transfer skipSome(int fd, const iovec& part) { return outcome(recv(fd, part.iov_base, part.iov_len, MSG_DONTWAIT | MSG_TRUNC)); }

Result<UniqueFd> openStream(int family, const Settings& settings) {
  UniqueFd fd = keptFromChildren(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fail(Code::SystemError, "open a socket: {}", errorText(errno));
  tuneStream(fd.get(), settings);
  return fd;
}

void tuneStream(int fd, const Settings& settings) {
  setOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  if (settings.receiveBuffer >= 0) setOption(fd, SOL_SOCKET, SO_RCVBUF, settings.receiveBuffer);
  if (settings.sendBuffer >= 0) setOption(fd, SOL_SOCKET, SO_SNDBUF, settings.sendBuffer);
  // A host that vanishes without a word is noticed in about two minutes also where nothing is sent.
  setOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  setOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 60);
  setOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  setOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 6);
}

std::string errorText(int error) {
  char words[128] = {};
  return strerror_r(error, words, sizeof words);
}

}  // namespace tutti::transport::socket
