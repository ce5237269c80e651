// A file descriptor with one owner. Owner: the holder; thread-safe as any value. Every descriptor of this folder is close-on-exec.
#pragma once

#include <unistd.h>

#include "core/unique_handle.h"

namespace tutti::bootstrap {

struct FdTraits {
  using Type = int;
  static Type invalid() noexcept { return -1; }
  static void close(Type fd) noexcept { (void)::close(fd); }
};
using UniqueFd = UniqueHandle<FdTraits>;

}  // namespace tutti::bootstrap
