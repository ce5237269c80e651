#include "transport/local/neighbour.h"

#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tutti::transport::local {

Neighbour::Neighbour(const ProcessEntry& entry, bool mayCopy) : pid_(static_cast<int32_t>(entry.pid.load(std::memory_order_relaxed))) {
  if (const int32_t fd = entry.exportsFd.load(std::memory_order_relaxed) - 1; fd >= 0) {
    if (auto imports = memory::ImportTable::open(pid_, fd)) {
      imports_ = std::make_unique<memory::ImportTable>(std::move(*imports));
      reach_ |= kReachesExports;
    }
  }
  if (mayCopy && copies(entry)) reach_ |= kReachesCopies;
}

Neighbour::~Neighbour() = default;

/// Reads the token where the process says that it is. A wrong one is that of another process with the same number, in another container.
bool Neighbour::copies(const ProcessEntry& entry) const {
  uint64_t token = 0;
  const Status status = copy(reinterpret_cast<std::byte*>(&token), entry.probe.load(std::memory_order_relaxed), sizeof token);
  return status.ok() && token == entry.token.load(std::memory_order_relaxed);
}

const std::byte* Neighbour::find(uint64_t theirs, uint64_t bytes) { return imports_ == nullptr ? nullptr : imports_->find(theirs, bytes); }

Status Neighbour::copy(std::byte* to, uint64_t theirs, uint64_t bytes) const {
  while (bytes > 0) {
    const iovec here{to, bytes};
    const iovec there{reinterpret_cast<void*>(theirs), bytes};
    const ssize_t copied = process_vm_readv(pid_, &here, 1, &there, 1, 0);
    if (copied <= 0)
      return error(Code::RemoteError, "cannot read memory of process {}: {}", pid_, copied == 0 ? "nothing there" : std::strerror(errno));
    to += copied;
    theirs += static_cast<uint64_t>(copied);
    bytes -= static_cast<uint64_t>(copied);
  }
  return {};
}

}  // namespace tutti::transport::local
