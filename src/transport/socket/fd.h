// Owner of a file descriptor. Not thread-safe, as any value.
#pragma once

#include <unistd.h>

#include "core/unique_handle.h"

namespace tutti::transport::socket {

struct FdTraits {
  using Type = int;
  static Type invalid() noexcept { return -1; }
  static void close(Type fd) noexcept { ::close(fd); }
};
using UniqueFd = UniqueHandle<FdTraits>;

}  // namespace tutti::transport::socket
