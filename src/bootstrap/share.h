// Hands one descriptor from a host's first process to its others, over an abstract Unix socket: nothing appears in the file system.
//
// Owner: the job. Only on the reactor's thread, but for opening.
// 1. The name is derived from the communicator's key: nobody else can guess it, and no two communicators share it.
// 2. Both sides prove that they know the key (handshake.h) and belong to the same user (SO_PEERCRED) before anything is handed over.
#pragma once

#include <functional>
#include <memory>

#include "core/unique_fd.h"
#include "bootstrap/handshake.h"
#include "bootstrap/listener.h"

namespace tutti::bootstrap {

/// What the processes of one host know of the place where they meet.
struct SharePlace {
  uint64_t number = 0;  ///< of the communicator
  Secret key{};
  int32_t host = 0;
};

/// Hands `fd` to whoever comes and may have it, until close() of what it returns. `fd` stays open meanwhile.
Result<std::shared_ptr<Listener>> offerShared(Reactor& reactor, const SharePlace& place, int fd);

using OnShared = std::function<void(Result<UniqueFd>)>;
/// Gets the descriptor from the process that offers it, within `limit`. RemoteError: that process does not answer, or is gone.
void fetchShared(Reactor& reactor, const SharePlace& place, std::chrono::milliseconds limit, OnShared done);

}  // namespace tutti::bootstrap
