#include "memory/exports.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "core/format.h"
#include "core/unique_fd.h"

namespace tutti::memory {
namespace {

/// A descriptor of another process, as one of this process. The kernel asks for the same rights as for tracing it.
Result<UniqueFd> openOf(int64_t pid, int64_t fd) {
  const std::string path = format("/proc/{}/fd/{}", pid, fd);
  UniqueFd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) return fail(Code::SystemError, "cannot open {}: {}", path, std::strerror(errno));
  return file;
}

Result<Mapping> mapOf(int64_t pid, int64_t fd, uint64_t least) {
  auto file = openOf(pid, fd);
  if (!file) return tl::unexpected(std::move(file).error());
  struct stat info{};
  if (fstat(file->get(), &info) != 0 || static_cast<uint64_t>(info.st_size) < least)
    return fail(Code::SystemError, "descriptor {} of process {} is not what it says", fd, pid);
  return Mapping::ofFile(file->get(), 0, Bytes(static_cast<uint64_t>(info.st_size)));
}

}  // namespace

Result<ExportTable> ExportTable::create() {
  auto memory = Mapping::shareable(Bytes(sizeof(ExportList)));
  if (!memory) return tl::unexpected(std::move(memory).error());
  ExportTable table;
  table.memory_ = std::move(*memory);
  return table;
}

void ExportTable::change(Export& entry, uint64_t base, uint64_t bytes, int64_t fd) {
  const uint64_t version = entry.version.load(std::memory_order_relaxed);
  entry.version.store(version + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // the odd version comes before what follows; pairs with ImportTable::refresh
  entry.base.store(base, std::memory_order_relaxed);
  entry.bytes.store(bytes, std::memory_order_relaxed);
  entry.fd.store(fd, std::memory_order_relaxed);
  entry.takenFrom.store(0, std::memory_order_relaxed);
  entry.takenTo.store(0, std::memory_order_relaxed);
  entry.version.store(version + 2, std::memory_order_release);
}

void ExportTable::add(const void* base, Bytes bytes, int fd) {
  const uint64_t used = list().used.load(std::memory_order_relaxed);
  size_t at = 0;
  while (at < used && list().entries[at].base.load(std::memory_order_relaxed) != 0) ++at;
  if (at == ExportList::kMost) return;
  change(list().entries[at], reinterpret_cast<uint64_t>(base), bytes.value, fd);
  if (at == used) list().used.store(used + 1, std::memory_order_release);
  list().changes.fetch_add(1, std::memory_order_release);
}

Export* ExportTable::find(const void* base) {
  const uint64_t used = list().used.load(std::memory_order_relaxed);
  for (size_t at = 0; at < used; ++at)
    if (list().entries[at].base.load(std::memory_order_relaxed) == reinterpret_cast<uint64_t>(base)) return &list().entries[at];
  return nullptr;
}

void ExportTable::remove(const void* base) {
  Export* const entry = find(base);
  if (entry == nullptr) return;
  change(*entry, 0, 0, -1);
  list().changes.fetch_add(1, std::memory_order_release);
}

void ExportTable::take(const void* base, uint64_t from, uint64_t to) noexcept {
  Export* const entry = find(base);
  if (entry == nullptr) return;
  entry->takenFrom.store(from, std::memory_order_relaxed);
  entry->takenTo.store(to, std::memory_order_relaxed);
  list().changes.fetch_add(1, std::memory_order_release);  // pairs with ImportTable::find
}

Result<ImportTable> ImportTable::open(int64_t pid, int fd) {
  auto memory = mapOf(pid, fd, sizeof(ExportList));
  if (!memory) return tl::unexpected(std::move(memory).error());
  ImportTable table;
  table.pid_ = pid;
  table.memory_ = std::move(*memory);
  return table;
}

std::byte* ImportTable::find(uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(*mutex_);
  if (list().changes.load(std::memory_order_acquire) != seenChanges_) refresh();
  const auto after = regions_.upper_bound(address);
  if (after == regions_.begin()) return nullptr;
  const Region& region = std::prev(after)->second;
  const uint64_t begin = address - region.base;
  if (bytes > region.bytes || begin > region.bytes - bytes || region.here.data() == nullptr) return nullptr;
  if (begin + bytes > region.takenFrom && begin < region.takenTo) return nullptr;
  return region.here.data() + begin;
}

/// Maps what has come and unmaps what has gone. What cannot be mapped stays listed without memory, so that it is tried once.
void ImportTable::refresh() {
  seenChanges_ = list().changes.load(std::memory_order_acquire);
  std::map<uint64_t, Region> now;
  const uint64_t used = std::min<uint64_t>(list().used.load(std::memory_order_acquire), ExportList::kMost);
  for (size_t at = 0; at < used; ++at) {
    const Export& entry = list().entries[at];
    const uint64_t version = entry.version.load(std::memory_order_acquire);
    Region region{.base = entry.base.load(std::memory_order_relaxed),
                  .bytes = entry.bytes.load(std::memory_order_relaxed),
                  .version = version,
                  .index = at,
                  .takenFrom = entry.takenFrom.load(std::memory_order_relaxed),
                  .takenTo = entry.takenTo.load(std::memory_order_relaxed),
                  .here = {}};
    const int64_t fd = entry.fd.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);  // pairs with ExportTable::change
    if (version % 2 != 0 || entry.version.load(std::memory_order_relaxed) != version) {
      --seenChanges_;  // it changes just now: the next look-up tries again
      continue;
    }
    if (region.base == 0) continue;
    const auto known = regions_.find(region.base);
    if (known != regions_.end() && known->second.version == version && known->second.index == at) {
      region.here = std::move(known->second.here);
    } else if (auto mapped = mapOf(pid_, fd, region.bytes); mapped && entry.version.load(std::memory_order_acquire) == version) {
      region.here = std::move(*mapped);  // with the same version still: the descriptor is that of this region
    }
    now.emplace(region.base, std::move(region));
  }
  regions_ = std::move(now);
}

}  // namespace tutti::memory
