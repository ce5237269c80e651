// The name of this host, as people know it.
#pragma once

#include <string>

namespace tutti {

/// Without its domain; empty when there is none. A system call.
std::string hostName();

}  // namespace tutti
