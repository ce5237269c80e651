#include "transport/local/neighbour.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

namespace tutti::transport::local {
namespace {

Status copyFrom(int32_t pid, std::byte* to, uint64_t theirs, uint64_t bytes) {
  while (bytes > 0) {
    const iovec here{to, bytes};
    const iovec there{reinterpret_cast<void*>(theirs), bytes};
    const ssize_t copied = process_vm_readv(pid, &here, 1, &there, 1, 0);
    if (copied <= 0)
      return error(Code::RemoteError, "cannot read memory of process {}: {}", pid, copied == 0 ? "nothing there" : std::strerror(errno));
    to += copied;
    theirs += static_cast<uint64_t>(copied);
    bytes -= static_cast<uint64_t>(copied);
  }
  return {};
}

/// With 5 the plain copy had not found its way into the cache on a machine where the call does not pay, and looked half as fast as it is.
constexpr int kTries = 20;

template <class Body>
std::chrono::nanoseconds fastest(Body&& body) {
  auto best = std::chrono::nanoseconds::max();
  for (int i = 0; i < kTries; ++i) {
    const auto began = std::chrono::steady_clock::now();
    body();
    best = std::min(best, std::chrono::nanoseconds(std::chrono::steady_clock::now() - began));
  }
  return best;
}

}  // namespace

Neighbour::Neighbour(const ProcessEntry& entry, bool mayCopy, std::function<bool()> isAlive)
    : pid_(static_cast<int32_t>(entry.pid.load(std::memory_order_relaxed))), isAlive_(std::move(isAlive)) {
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

Status Neighbour::copy(std::byte* to, uint64_t theirs, uint64_t bytes) const { return copyFrom(pid_, to, theirs, bytes); }

bool Neighbour::fill(const iovec& part, const std::byte* from, uint64_t bytes) const {
  if (!isAlive_ || !isAlive_()) return false;
  const iovec here{const_cast<std::byte*>(from), bytes};
  return process_vm_writev(pid_, &here, 1, &part, 1, 0) == static_cast<ssize_t>(bytes);
}

bool Neighbour::isAtRest(int32_t thread) const noexcept {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid_, thread);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno == ENOENT || errno == ESRCH;
  char line[256];
  const ssize_t length = read(file, line, sizeof line);
  const bool isGone = length < 0 && errno == ESRCH;
  close(file);
  if (length <= 0) return isGone;
  // "PID (NAME) STATE …", where the name may hold anything. Running, or in a wait of the kernel that no signal ends: it may be in the call.
  const char* const end = std::find(std::make_reverse_iterator(line + length), std::make_reverse_iterator(line), ')').base();
  return end != line && end + 1 < line + length && end[1] != 'R' && end[1] != 'D';
}

bool copiesPay() {
  static constexpr int kWorthCopies = 3;  // between a machine where `TUTTI_CMA=1 tutti bench all_gather` gains, and one where it loses
  static constexpr size_t kBytes = 256 << 10;
  static const bool pays = [] {
    std::vector<std::byte> from(kBytes, std::byte{1}), to(kBytes, std::byte{2}), again(kBytes, std::byte{3});
    bool isComplete = true;
    const auto call = fastest(
        [&] { isComplete = copyFrom(getpid(), to.data(), reinterpret_cast<uint64_t>(from.data()), kBytes).ok() && isComplete; });
    const auto plain = fastest([&] {
      std::memcpy(again.data(), from.data(), kBytes);
      asm volatile("" : : "r"(again.data()) : "memory");
    });
    return isComplete && call < kWorthCopies * plain;
  }();
  return pays;
}

}  // namespace tutti::transport::local
