// Configuration files: NAME=VALUE lines that become environment variables unless those are set.
//
// No state. Changes the environment: nobody else may be reading or changing it meanwhile.
// 1. A line that starts with # is a comment; nothing is trimmed and quotes mean nothing; the first = divides.
// 2. Names and values are cut at 1,023 bytes; a line without = or without a name is passed over.
#pragma once

#include <string>

namespace tutti::config {

inline constexpr const char* kSystemFile = "/etc/nccl.conf";

/// Reads one file; false when it cannot be opened, which is no error.
bool loadFile(const char* path);

/// NCCL_CONF_FILE, or else .nccl.conf in the home that the password database names; "" when there is neither.
std::string findUserFile();

}  // namespace tutti::config
