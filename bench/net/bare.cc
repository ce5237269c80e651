#include "bare.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace tutti::bench {
namespace {

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::_Exit(1);
}

void noDelay(int fd) {
  const int one = 1;
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0) die("setsockopt");
}

template <class Move>
void striped(const std::vector<int>& fds, size_t bytes, Move&& move) {
  const size_t share = (bytes + fds.size() - 1) / fds.size();
  std::vector<std::thread> threads;
  for (size_t i = 1; i < fds.size(); ++i) {
    const size_t begin = std::min(bytes, i * share);
    threads.emplace_back([&, begin, i] { move(fds[i], begin, std::min(share, bytes - begin)); });
  }
  move(fds[0], 0, std::min(share, bytes));
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

BarePair connectPairs(size_t count) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (listener < 0 || bind(listener, raw, length) != 0 || listen(listener, 64) != 0 || getsockname(listener, raw, &length) != 0)
    die("listen");
  BarePair pair;
  for (size_t i = 0; i < count; ++i) {
    const int out = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(out, raw, sizeof address) != 0) die("connect");
    const int in = accept(listener, nullptr, nullptr);
    if (in < 0) die("accept");
    noDelay(in);
    noDelay(out);
    pair.first.push_back(out);
    pair.second.push_back(in);
  }
  close(listener);
  return pair;
}

void writeAll(int fd, const std::byte* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL);
    if (sent <= 0) die("send");
    data += sent;
    bytes -= static_cast<size_t>(sent);
  }
}

void readAll(int fd, std::byte* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = recv(fd, data, bytes, 0);
    if (got <= 0) die("recv");
    data += got;
    bytes -= static_cast<size_t>(got);
  }
}

void spinRead(int fd, std::byte* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = recv(fd, data, bytes, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) continue;
    if (got <= 0) die("recv");
    data += got;
    bytes -= static_cast<size_t>(got);
  }
}

void spinWrite(int fd, const std::byte* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EAGAIN) continue;
    if (sent <= 0) die("send");
    data += sent;
    bytes -= static_cast<size_t>(sent);
  }
}

void writeStriped(const std::vector<int>& fds, const std::byte* data, size_t bytes) {
  striped(fds, bytes, [&](int fd, size_t begin, size_t share) { writeAll(fd, data + begin, share); });
}

void readStriped(const std::vector<int>& fds, std::byte* data, size_t bytes) {
  striped(fds, bytes, [&](int fd, size_t begin, size_t share) { readAll(fd, data + begin, share); });
}

}  // namespace tutti::bench
