// File descriptors between processes of a host, over a Unix socket that both already have.
//
// The socket stays the caller's, and so do its trust and its waiting: neither function ever waits. Any thread, one at a time for a socket.
// 1. A descriptor arrives as a duplicate, with all that the kernel knows of it: also where a path below /proc would not do (GPU memory).
#pragma once

#include <string_view>

#include "core/status.h"
#include "core/unique_fd.h"

namespace tutti {

/// Sends `fd` with one byte. SystemError when it cannot be sent now; `what` names it there.
Status sendDescriptor(int socket, int fd, std::string_view what);
/// Receives what sendDescriptor() sent, when the socket is readable. RemoteError: the other side is gone; SystemError: anything else,
/// also that nothing has come yet.
Result<UniqueFd> receiveDescriptor(int socket, std::string_view what);

}  // namespace tutti
