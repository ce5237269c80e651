#include "core/descriptor_message.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace tutti {
namespace {

/// A message of one byte with room for one descriptor, and for no second one that fits into the padding behind it: nobody would close it.
struct Envelope {
  Envelope() {
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = CMSG_LEN(sizeof(int));
  }
  Envelope(const Envelope&) = delete;
  Envelope& operator=(const Envelope&) = delete;
  std::byte one{1};
  iovec data{&one, 1};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
};

}  // namespace

Status sendDescriptor(int socket, int fd, std::string_view what) {
  Envelope envelope;
  cmsghdr* const head = CMSG_FIRSTHDR(&envelope.message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(head), &fd, sizeof fd);
  if (sendmsg(socket, &envelope.message, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
    return error(Code::SystemError, "cannot hand over {}: {}", what, std::strerror(errno));
  return {};
}

Result<UniqueFd> receiveDescriptor(int socket, std::string_view what) {
  Envelope envelope;
  const ssize_t received = recvmsg(socket, &envelope.message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (received < 0)
    return fail(errno == ECONNRESET ? Code::RemoteError : Code::SystemError, "cannot receive {}: {}", what, std::strerror(errno));
  int fd = -1;
  for (cmsghdr* head = CMSG_FIRSTHDR(&envelope.message); head != nullptr; head = CMSG_NXTHDR(&envelope.message, head)) {
    if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(sizeof fd))
      std::memcpy(&fd, CMSG_DATA(head), sizeof fd);
  }
  UniqueFd came(fd);
  const bool isCut = (envelope.message.msg_flags & MSG_CTRUNC) != 0;
  if (came && !isCut) return came;
  return fail(received == 0 ? Code::RemoteError : Code::SystemError, "the other process did not hand over {}{}", what,
              isCut ? ": no descriptor is left here, or it sent several" : "");
}

}  // namespace tutti
