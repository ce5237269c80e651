// One TCP socket: non-blocking, never raises SIGPIPE.
// Free functions over a descriptor; any thread, one at a time per direction.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <string>

#include "core/status.h"
#include "core/unique_fd.h"
#include "transport/socket/address.h"
#include "transport/socket/settings.h"

namespace tutti::transport::socket {

/// What one system call did.
struct Transfer {
  uint64_t bytes = 0;
  bool wouldBlock = false;
  bool ended = false;  ///< receive: the peer sent its last byte
  int error = 0;       ///< errno
};

Transfer sendSome(int fd, const iovec* parts, size_t count);
Transfer receiveSome(int fd, const iovec* parts, size_t count);
/// The same without taking it away: the kernel neither frees the bytes nor acknowledges them in this call.
Transfer peekSome(int fd, const iovec& part);
/// Takes away what was peeked at; `part` is where it lies, and stays as it is. How much was taken.
Transfer skipSome(int fd, const iovec& part);

/// A non-blocking TCP socket with the settings' buffers and no delay.
Result<UniqueFd> openStream(int family, const Settings& settings);
/// The same for a socket that was accepted.
void tuneStream(int fd, const Settings& settings);

/// The words for an errno.
std::string errorText(int error);

}  // namespace tutti::transport::socket
