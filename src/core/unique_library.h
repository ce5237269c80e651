// Owner of a library that was opened at run time.
#pragma once

#include <dlfcn.h>

#include "core/unique_handle.h"

namespace tutti {

struct LibraryTraits {
  using Type = void*;
  static Type invalid() noexcept { return nullptr; }
  static void close(Type library) noexcept { (void)dlclose(library); }
};
using UniqueLibrary = UniqueHandle<LibraryTraits>;

}  // namespace tutti
