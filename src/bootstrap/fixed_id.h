// The unique id of NCCL_COMM_ID: made of the same text in every process, without a word between them. May ask a name server. Any thread.
#pragma once

#include <string>

#include "bootstrap/unique_id.h"

namespace tutti::bootstrap {

/// `where`: "host:port" or "[v6]:port". The secret is made of `jobSecret`; without one it is known to everybody. InvalidArgument when
/// `where` reads otherwise, SystemError when the host has no address.
Result<UniqueId> fixedId(const std::string& where, const std::string& jobSecret);

}  // namespace tutti::bootstrap
