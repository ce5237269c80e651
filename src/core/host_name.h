// The name of this host, as people know it, and of its running kernel.
#pragma once

#include <string>

namespace tutti {

/// Without its domain; empty when there is none. A system call.
std::string hostName();

/// What the kernel calls this run of it, the same in all containers; empty where it does not say, or without a descriptor. Reads a file.
std::string bootId();

}  // namespace tutti
