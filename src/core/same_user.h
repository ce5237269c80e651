// Whether a Unix socket leads to a process of this user: what processes of a host ask before they hand each other descriptors.
#pragma once

#include "core/status.h"

namespace tutti {

/// InvalidUsage: the process at the other end of `socket` belongs to another user; SystemError: the system does not say.
Status checkSameUser(int socket);

}  // namespace tutti
