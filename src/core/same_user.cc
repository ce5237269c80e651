#include "core/same_user.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tutti {

Status checkSameUser(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return error(Code::SystemError, "the system does not say whose socket it is: {}", std::strerror(errno));
  if (peer.uid != geteuid())
    return error(Code::InvalidUsage, "process {} of this host belongs to another user ({}, not {})", peer.pid, peer.uid, geteuid());
  return {};
}

}  // namespace tutti
