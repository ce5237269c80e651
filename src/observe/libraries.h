// The shared libraries of this process, by name: which is this one, and whether another one of its kind is there too.
//
// Stateless; any thread. Asks the dynamic linker, and opens no file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::observe {

struct MappedLibrary {
  std::string path;
  std::string buildId;  ///< in hex; empty when the file has none
  bool isThis = false;  ///< this code is of it
};

/// All whose file name begins with `name`.
std::vector<MappedLibrary> mappedLibraries(std::string_view name);

/// Says once, with NCCL_DEBUG=INFO, which file this library is, and warns when another libnccl is mapped as well.
void tellLibrary();

}  // namespace tutti::observe
