#include "bootstrap/share.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "bootstrap/asio.h"
#include "bootstrap/wire.h"
#include "observe/log.h"

namespace tutti::bootstrap {
namespace {

constexpr std::string_view kWhat = "the memory that the processes of a host share";

SocketAddress addressOf(const SharePlace& place) {
  Writer writer;
  writer.number(place.number);
  writer.number(place.host);
  const Secret hash = derive(place.key, "name of the host's socket", writer.view());
  std::string name = "tutti-";
  for (size_t i = 0; i < 16; ++i) name += format("{:02x}", hash[i]);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // the leading zero makes it abstract
  SocketAddress result;
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  std::memcpy(&result.storage, &address, result.size);
  return result;
}

Secret keyOf(const SharePlace& place) { return derive(place.key, "descriptors of a host", {}); }

Status checkUser(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return error(Code::SystemError, "the system does not say whose socket it is: {}", std::strerror(errno));
  if (peer.uid != geteuid())
    return error(Code::InvalidUsage, "process {} of this host belongs to another user ({}, not {})", peer.pid, peer.uid, geteuid());
  return {};
}

Status sendDescriptor(int socket, int fd) {
  std::byte one{1};
  iovec data{&one, 1};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(head), &fd, sizeof fd);
  if (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
    return error(Code::SystemError, "cannot hand over {}: {}", kWhat, std::strerror(errno));
  return {};
}

Result<UniqueFd> receiveDescriptor(int socket) {
  std::byte one{};
  iovec data{&one, 1};
  int fd = -1;
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  const ssize_t received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (received < 0)
    return fail(errno == ECONNRESET ? Code::RemoteError : Code::SystemError, "cannot receive {}: {}", kWhat, std::strerror(errno));
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(sizeof fd))
      std::memcpy(&fd, CMSG_DATA(head), sizeof fd);
  }
  if (fd >= 0) return UniqueFd(fd);
  return fail(received == 0 ? Code::RemoteError : Code::SystemError, "the first process of this host did not hand over {}{}", kWhat,
              (message.msg_flags & MSG_CTRUNC) != 0 ? ": no descriptor is left here" : "");
}

}  // namespace

Result<std::shared_ptr<Listener>> offerShared(Reactor& reactor, const SharePlace& place, int fd) {
  auto socket = listenAt(addressOf(place), "an abstract Unix socket");
  if (!socket) return fail(Code::SystemError, "cannot offer {}: {}", kWhat, socket.error().text());
  std::vector<UniqueFd> sockets;
  sockets.push_back(std::move(*socket));
  auto listener = std::make_shared<Listener>(
      reactor, std::move(sockets),
      [place, key = keyOf(place)](Purpose purpose, uint64_t topic) -> std::optional<Secret> {
        if (purpose != Purpose::Share || topic != place.number) return std::nullopt;
        return key;
      },
      [fd](Established connection) {
        Status status = checkUser(connection.socket.native_handle());
        if (status.ok()) status = sendDescriptor(connection.socket.native_handle(), fd);
        if (!status.ok()) observe::warn("bootstrap: {}", status.text());
      });
  listener->start();
  return listener;
}

void fetchShared(Reactor& reactor, const SharePlace& place, std::chrono::milliseconds limit, OnShared done) {
  const Handshake::Target target{addressOf(place), "the first process of this host", Purpose::Share, place.number, keyOf(place)};
  (void)Handshake::connect(reactor, target, limit, [done = std::move(done)](Result<Established> outcome) {
    if (!outcome) return done(fail(outcome.error().code(), "cannot get {}: {}", kWhat, outcome.error().text()));
    if (Status status = checkUser(outcome->socket.native_handle()); !status.ok()) return done(tl::unexpected(std::move(status)));
    const auto socket = std::make_shared<Socket>(std::move(outcome->socket));
    socket->async_wait(Socket::wait_read, [socket, done](const asio::error_code& why) {
      if (why) return done(fail(Code::RemoteError, "cannot receive {}: {}", kWhat, why.message()));
      done(receiveDescriptor(socket->native_handle()));
    });
  });
}

}  // namespace tutti::bootstrap
