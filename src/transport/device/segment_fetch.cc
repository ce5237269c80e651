// The client of segment_server.h.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "core/children.h"
#include "core/same_user.h"
#include "transport/device/segment_server.h"
#include "transport/device/segment_wire.h"

namespace tutti::transport::device {

using memory::Shared;

namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFirstPause{1};
constexpr std::chrono::milliseconds kLongestPause{50};

/// "process 4711", as the system tells it of a connected socket.
std::string describePeer(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return "the other process";
  return format("process {}", peer.pid);
}

/// Whether there is something to receive before `end`.
Result<bool> waitFor(int socket, SteadyClock::time_point end) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - SteadyClock::now());
    pollfd ready{socket, POLLIN, 0};
    const int count = ::poll(&ready, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, INT32_MAX)));
    if (count > 0) return true;
    if (count == 0) return false;
    if (errno != EINTR) return fail(Code::SystemError, "wait at a Unix socket: {}", std::strerror(errno));
  }
}

/// One try, until `end`. Nothing: the server had no room for this client just now.
std::optional<Result<Shared>> ask(const SegmentName& name, SteadyClock::time_point end) {
  const UniqueFd socket = keptFromChildren(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return fail(Code::SystemError, "make a Unix socket: {}", std::strerror(errno));
  const SegmentAddress address(name.process);
  if (connect(socket.get(), address.raw(), address.size()) != 0) {
    if (errno == EAGAIN || errno == EINTR) return std::nullopt;
    if (errno == ECONNREFUSED)
      return fail(Code::RemoteError, "its process has ended, or lives in another network namespace: nobody listens at its Unix socket");
    return fail(Code::SystemError, "connect to its process by a Unix socket: {}", std::strerror(errno));
  }
  if (Status status = checkSameUser(socket.get()); !status.ok()) return tl::unexpected(std::move(status));
  if (const int why = sendRequest(socket.get(), name); why != 0) {
    if (why == EPIPE || why == ECONNRESET || why == ENOTCONN || why == EAGAIN) return std::nullopt;
    return fail(Code::SystemError, "ask {}: {}", describePeer(socket.get()), std::strerror(why));
  }
  const auto ready = waitFor(socket.get(), end);
  if (!ready) return tl::unexpected(ready.error());
  if (!*ready) return fail(Code::RemoteError, "{} does not answer in time", describePeer(socket.get()));
  auto reply = receiveReply(socket.get());
  if (reply && !*reply) return tl::unexpected(std::move(*reply).error().at(describePeer(socket.get())));
  return reply;
}

}  // namespace

Result<Shared> fetchSegment(const SegmentName& name, std::chrono::milliseconds limit) {
  const auto end = SteadyClock::now() + limit;
  std::chrono::milliseconds pause = kFirstPause;
  for (;;) {
    auto outcome = ask(name, end);
    if (!outcome && SteadyClock::now() + pause >= end) outcome = fail(Code::RemoteError, "its process takes no more clients");
    if (outcome && *outcome) return std::move(**outcome);
    if (outcome)
      return tl::unexpected(std::move(*outcome).error().at(
          format("get segment {} of device {} of another process within {} ms", name.number, name.device, limit.count())));
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace tutti::transport::device
