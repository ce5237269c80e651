#include "bootstrap/share.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <utility>

#include "bootstrap/asio.h"
#include "bootstrap/wire.h"
#include "core/descriptor_message.h"
#include "core/same_user.h"
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
      [&reactor, fd](Established connection) {
        Status status = checkSameUser(connection.socket.native_handle());
        if (status.ok()) status = sendDescriptor(connection.socket.native_handle(), fd, kWhat);
        if (!status.ok()) return observe::warn("bootstrap: {}", status.text());
        reactor.countSent();
      });
  listener->start();
  return listener;
}

void fetchShared(Reactor& reactor, const SharePlace& place, std::chrono::milliseconds limit, OnShared done) {
  using std::chrono::steady_clock;
  const auto began = steady_clock::now();
  const Handshake::Target target{addressOf(place), "the first process of this host", Purpose::Share, place.number, keyOf(place)};
  (void)Handshake::connect(reactor, target, limit, [&reactor, place, limit, began, done = std::move(done)](Result<Established> outcome) {
    const auto took = std::chrono::ceil<std::chrono::milliseconds>(steady_clock::now() - began);
    // A door lets go of who has been slow, which is no refusal: on a busy machine anybody may have been.
    if (!outcome && took >= Listener::kSlow && took < limit) return fetchShared(reactor, place, limit - took, done);
    if (!outcome) return done(fail(outcome.error().code(), "cannot get {}: {}", kWhat, outcome.error().text()));
    if (Status status = checkSameUser(outcome->socket.native_handle()); !status.ok()) return done(tl::unexpected(std::move(status)));
    const auto socket = std::make_shared<Socket>(std::move(outcome->socket));
    socket->async_wait(Socket::wait_read, [&reactor, socket, done](const asio::error_code& why) {
      if (why) return done(fail(Code::RemoteError, "cannot receive {}: {}", kWhat, why.message()));
      reactor.countReceived();
      done(receiveDescriptor(socket->native_handle(), kWhat));
    });
  });
}

}  // namespace tutti::bootstrap
