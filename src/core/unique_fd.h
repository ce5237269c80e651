// Owner of a file descriptor.
#pragma once

#include <unistd.h>

#include "core/unique_handle.h"

namespace tutti {

struct FdTraits {
  using Type = int;
  static Type invalid() noexcept { return -1; }
  static void close(Type fd) noexcept { ::close(fd); }
};
using UniqueFd = UniqueHandle<FdTraits>;

}  // namespace tutti
