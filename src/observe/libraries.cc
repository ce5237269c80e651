#include "observe/libraries.h"

#include <link.h>

#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "observe/log.h"

namespace tutti::observe {
namespace {

struct Search {
  std::string_view name;
  std::vector<MappedLibrary> found;
};

std::string hexOf(const unsigned char* bytes, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += format("{:02x}", bytes[i]);
  return text;
}

/// The note of type 3 (NT_GNU_BUILD_ID) of owner "GNU".
std::string buildIdOf(const dl_phdr_info& info) {
  constexpr size_t kAlign = 4;
  const auto roundUp = [](size_t size) { return (size + kAlign - 1) / kAlign * kAlign; };
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr) & header = info.dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const unsigned char*>(info.dlpi_addr + header.p_vaddr);
    for (size_t left = header.p_memsz; left >= sizeof(ElfW(Nhdr));) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const size_t size = sizeof note + roundUp(note.n_namesz) + roundUp(note.n_descsz);
      if (size > left) break;
      const unsigned char* const owner = at + sizeof note;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(owner, "GNU", 4) == 0)
        return hexOf(owner + roundUp(note.n_namesz), note.n_descsz);
      at += size;
      left -= size;
    }
  }
  return {};
}

bool holds(const dl_phdr_info& info, uintptr_t address) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr) & header = info.dlpi_phdr[i];
    const uintptr_t begin = info.dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && address >= begin && address - begin < header.p_memsz) return true;
  }
  return false;
}

int look(dl_phdr_info* info, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  const std::string_view path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
  const std::string_view file = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  if (file.substr(0, search.name.size()) != search.name) return 0;
  char real[PATH_MAX];
  const char* const resolved = ::realpath(info->dlpi_name, real);
  search.found.push_back({resolved == nullptr ? std::string(path) : std::string(resolved), buildIdOf(*info),
                          holds(*info, reinterpret_cast<uintptr_t>(&hexOf))});
  return 0;
}

const char* shown(const MappedLibrary& library) { return library.buildId.empty() ? "none" : library.buildId.c_str(); }

}  // namespace

std::vector<MappedLibrary> mappedLibraries(std::string_view name) {
  Search search{name, {}};
  dl_iterate_phdr(look, &search);
  return std::move(search.found);
}

void tellLibrary() {
  static std::atomic<bool> told = false;
  if (!enabled(Level::Warn, Subsys::All) || told.exchange(true, std::memory_order_relaxed)) return;
  for (const MappedLibrary& library : mappedLibraries("libnccl.so")) {
    if (library.isThis) {
      info(Subsys::Init | Subsys::Env, "This is {}, build id {}", library.path, shown(library));
    } else {
      // Not an error of anybody's call, so none for ncclGetLastError.
      log(Level::Version, Subsys::All,
          "NCCL WARN a second libnccl is mapped, {}, build id {}: what was bound to it does not reach this library",
          library.path, shown(library));
    }
  }
}

}  // namespace tutti::observe
