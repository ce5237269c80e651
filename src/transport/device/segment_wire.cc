#include "transport/device/segment_wire.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::transport::device {

using memory::Shared;

namespace {

constexpr std::string_view kWhat = "a segment of scratch";

/// Room for one descriptor, and for no second one that fits into the padding behind it.
struct Descriptor {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
  static constexpr size_t kBytes = CMSG_LEN(sizeof(int));
};

/// Whether all of it is on its way.
bool sendWhole(int socket, const SegmentReply& reply, std::string_view text, int fd) {
  std::array<iovec, 2> parts{iovec{const_cast<SegmentReply*>(&reply), sizeof reply}, iovec{const_cast<char*>(text.data()), text.size()}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  Descriptor descriptor;
  if (fd >= 0) {
    message.msg_control = descriptor.room.data();
    message.msg_controllen = Descriptor::kBytes;
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = Descriptor::kBytes;
    std::memcpy(CMSG_DATA(head), &fd, sizeof fd);
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

UniqueFd descriptorOf(msghdr& message) {
  int fd = -1;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS && head->cmsg_len == Descriptor::kBytes)
      std::memcpy(&fd, CMSG_DATA(head), sizeof fd);
  }
  return UniqueFd(fd);
}

Result<Shared> takeReply(const SegmentReply& reply, std::string_view text, UniqueFd fd, bool isCut) {
  if (reply.code != static_cast<int32_t>(Code::Ok)) {
    const bool isError = reply.code > static_cast<int32_t>(Code::Ok) && reply.code < static_cast<int32_t>(Code::InProgress);
    return fail(isError ? static_cast<Code>(reply.code) : Code::RemoteError, "{}", text);
  }
  const bool needsDescriptor = memory::hasDescriptor(reply.ticket.kind);
  if (needsDescriptor && (!fd || isCut))
    return fail(isCut ? Code::SystemError : Code::RemoteError, "the other process did not hand over {}{}", kWhat,
                isCut ? ": no descriptor is left here, or it sent several" : "");
  Shared shared;
  shared.ticket = reply.ticket;
  if (needsDescriptor) shared.fd = std::move(fd);
  return shared;
}

}  // namespace

SegmentAddress::SegmentAddress(const ProcessKey& key) {
  std::string name = "tutti-segments-";
  for (const uint8_t byte : key.bytes) name += format("{:02x}", byte);
  address_.sun_family = AF_UNIX;
  std::memcpy(address_.sun_path + 1, name.data(), name.size());  // the leading zero makes it abstract
  size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

int sendRequest(int socket, const SegmentName& name) {
  SegmentRequest request;
  request.device = name.device;
  request.place = name.place;
  request.number = name.number;
  return send(socket, &request, sizeof request, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? errno : 0;
}

Heard receiveRequest(int socket, SegmentRequest* request) {
  const ssize_t size = recv(socket, request, sizeof *request, MSG_DONTWAIT | MSG_TRUNC);  // MSG_TRUNC: the size that it had
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return Heard::Nothing;
  return size == sizeof *request && request->mark == SegmentRequest::kMark ? Heard::Request : Heard::Nonsense;
}

void sendReply(int socket, const Result<Shared>& outcome) {
  SegmentReply reply;
  if (outcome) {
    reply.ticket = outcome->ticket;
    if (sendWhole(socket, reply, {}, outcome->fd.get())) return;
    const int why = errno;
    if (why == EPIPE || why == ECONNRESET) return;  // the client is gone
    return sendReply(socket, fail(Code::SystemError, "cannot hand over {}: {}", kWhat, std::strerror(why)));
  }
  const std::string text = outcome.error().text();
  const std::string_view shown = std::string_view(text).substr(0, SegmentReply::kMostText);
  reply.code = static_cast<int32_t>(outcome.error().code());
  reply.textBytes = static_cast<uint32_t>(shown.size());
  (void)sendWhole(socket, reply, shown, -1);
}

std::optional<Result<Shared>> receiveReply(int socket) {
  SegmentReply reply;
  std::array<char, SegmentReply::kMostText> text;
  std::array<iovec, 2> parts{iovec{&reply, sizeof reply}, iovec{text.data(), text.size()}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  Descriptor descriptor;
  message.msg_control = descriptor.room.data();
  message.msg_controllen = Descriptor::kBytes;
  const ssize_t received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (received == 0 || (received < 0 && errno == ECONNRESET)) return std::nullopt;
  if (received < 0) return fail(Code::SystemError, "cannot receive {}: {}", kWhat, std::strerror(errno));
  UniqueFd fd = descriptorOf(message);
  const auto size = static_cast<size_t>(received);
  if (size < sizeof reply || reply.mark != SegmentReply::kMark || reply.textBytes != size - sizeof reply ||
      (message.msg_flags & MSG_TRUNC) != 0)
    return fail(Code::RemoteError, "the other process answers {} bytes that are no answer", size);
  return takeReply(reply, {text.data(), reply.textBytes}, std::move(fd), (message.msg_flags & MSG_CTRUNC) != 0);
}

}  // namespace tutti::transport::device
