#include "transport/local/neighbour.h"

#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

namespace tutti::transport::local {

Neighbour::Neighbour(const ProcessEntry& entry, bool mayCopy) : pid_(static_cast<int32_t>(entry.pid.load(std::memory_order_relaxed))) {
  if (const int32_t fd = entry.exportsFd.load(std::memory_order_relaxed) - 1; fd >= 0) {
    if (auto imports = memory::ImportTable::open(pid_, fd)) {
      imports_ = std::make_unique<memory::ImportTable>(std::move(*imports));
      reach_ |= kReachesExports;
    }
  }
  if (!mayCopy || !copies(entry)) return;
  reach_ |= kReachesCopies;
  if (copiesPay(entry)) reach_ |= kCopiesPay;
}

Neighbour::~Neighbour() = default;

/// Reads the token where the process says that it is. A wrong one is that of another process with the same number, in another container.
bool Neighbour::copies(const ProcessEntry& entry) const {
  uint64_t token = 0;
  const Status status = copy(reinterpret_cast<std::byte*>(&token), entry.probe.load(std::memory_order_relaxed), sizeof token);
  return status.ok() && token == entry.token.load(std::memory_order_relaxed);
}

namespace {

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

/// The call pins pages one by one, which takes longer than the copy it saves on some machines and less on others. What it replaces: a
/// copy into shared memory, and one out of it by another core. Measured once in a process: it is a property of the machine.
bool Neighbour::copiesPay(const ProcessEntry& entry) const {
  constexpr int kWorthCopies = 3;  // between a machine where `TUTTI_CMA=1 tutti bench all_gather` gains, and one where it loses
  static std::atomic<int> known{-1};
  if (const int pays = known.load(std::memory_order_relaxed); pays >= 0) return pays == 1;
  std::vector<std::byte> to(Arena::kProbeBytes, std::byte{2});
  std::vector<std::byte> again(Arena::kProbeBytes, std::byte{3});
  bool isComplete = true;
  const auto call =
      fastest([&] { isComplete = copy(to.data(), entry.probe.load(std::memory_order_relaxed), Arena::kProbeBytes).ok() && isComplete; });
  const auto plain = fastest([&] {
    std::memcpy(again.data(), to.data(), to.size());
    asm volatile("" : : "r"(again.data()) : "memory");
  });
  const bool pays = isComplete && call < kWorthCopies * plain;
  known.store(pays ? 1 : 0, std::memory_order_relaxed);
  return pays;
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
