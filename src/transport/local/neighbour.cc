#include "transport/local/neighbour.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
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
      return error(copied < 0 && errno == ESRCH ? Code::RemoteError : Code::SystemError, "cannot read memory of process {}: {}", pid,
                   copied == 0 ? "nothing there" : std::strerror(errno));
    to += copied;
    theirs += static_cast<uint64_t>(copied);
    bytes -= static_cast<uint64_t>(copied);
  }
  return {};
}

template <class Body>
std::chrono::nanoseconds timeOf(Body&& body) {
  const auto began = std::chrono::steady_clock::now();
  body();
  return std::chrono::steady_clock::now() - began;
}

/// What the system says of a thread, a 0 behind it: bytes, without the 0, or -errno.
ssize_t readOf(int32_t pid, int32_t thread, const char* what, char* text, size_t capacity) noexcept {
  char path[80];
  std::snprintf(path, sizeof path, "/proc/%d/task/%d/%s", pid, thread, what);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return -errno;
  const ssize_t length = read(file, text, capacity - 1);
  const int cause = errno;
  close(file);
  if (length < 0) return -cause;
  text[length] = 0;
  return length;
}

/// Whether /proc is there and numbers processes as this one does: in a namespace of its own it may be another's.
bool seesThreadsOf(int32_t pid) {
  char own[32];
  const ssize_t length = readlink("/proc/self", own, sizeof own - 1);
  if (length <= 0) return false;
  own[length] = 0;
  char text[32];
  return std::strtol(own, nullptr, 10) == getpid() && readOf(pid, pid, "stat", text, sizeof text) > 0 &&
         std::strtol(text, nullptr, 10) == pid;
}

/// 'S', 'T' …, as proc(5) has them; 0: not known.
char stateOf(const char* stat, ssize_t length) noexcept {
  // "PID (NAME) STATE …", where the name may hold anything.
  const char* const end = std::find(std::make_reverse_iterator(stat + length), std::make_reverse_iterator(stat), ')').base();
  return end != stat && end + 1 < stat + length ? end[1] : 0;
}

}  // namespace

bool isStopped(int32_t pid, int32_t thread) noexcept {
  char text[256];
  const auto length = readOf(pid, thread, "stat", text, sizeof text);
  const char state = length > 0 ? stateOf(text, length) : 0;
  return state == 'T' || state == 't';
}

Neighbour::Neighbour(const ProcessEntry& entry, bool mayCopy, std::function<bool()> isAlive)
    : pid_(static_cast<int32_t>(entry.pid.load(std::memory_order_relaxed))), isAlive_(std::move(isAlive)) {
  if (const int32_t fd = entry.exportsFd.load(std::memory_order_relaxed) - 1; fd >= 0) {
    if (auto imports = memory::ImportTable::open(pid_, fd)) {
      imports_ = std::make_unique<memory::ImportTable>(std::move(*imports));
      reach_ |= kReachesExports;
    }
  }
  if (mayCopy && copies(entry)) reach_ |= kReachesCopies;
  isWatchable_ = seesThreadsOf(pid_);
}

Neighbour::~Neighbour() = default;

/// Reads the token where the process says that it is. A wrong one is that of another process with the same number, in another container.
bool Neighbour::copies(const ProcessEntry& entry) const {
  uint64_t token = 0;
  const Status status = copy(reinterpret_cast<std::byte*>(&token), entry.probe.load(std::memory_order_relaxed), sizeof token);
  return status.ok() && token == entry.token.load(std::memory_order_relaxed);
}

std::byte* Neighbour::find(uint64_t theirs, uint64_t bytes) { return imports_ == nullptr ? nullptr : imports_->find(theirs, bytes); }

Status Neighbour::copy(std::byte* to, uint64_t theirs, uint64_t bytes) const { return copyFrom(pid_, to, theirs, bytes); }

bool Neighbour::fill(const iovec& part, const std::byte* from, uint64_t bytes) const {
  if (!isAlive_ || !isAlive_()) return false;
  const iovec here{const_cast<std::byte*>(from), bytes};
  return process_vm_writev(pid_, &here, 1, &part, 1, 0) == static_cast<ssize_t>(bytes);
}

bool Neighbour::isAtRest(int32_t thread) const noexcept {
  char text[256];
  const auto stat = readOf(pid_, thread, "stat", text, sizeof text);
  if (stat < 0) return stat == -ENOENT || stat == -ESRCH;
  const char state = stateOf(text, stat);
  if (state == 'T' || state == 't' || state == 'Z' || state == 'X') return true;
  if (state != 'S') return false;
  // Asleep, which it may be in the middle of the call, waiting for a page that another process provides. "NUMBER …", or "running".
  const auto call = readOf(pid_, thread, "syscall", text, sizeof text);
  if (call <= 0) return false;
  char* after = nullptr;
  const long number = std::strtol(text, &after, 10);
  return after != text && number != SYS_process_vm_writev;
}

bool copiesPay() {
  static constexpr int kWorthCopies = 3;  // where `TUTTI_CMA=1 tutti bench all_gather -b 1M -e 16M` gains it is less, where it loses more
  static constexpr size_t kBytes = 256 << 10;
  // In turns, as both are slow while others use the core or its cache, and more plain ones: with both in the second cache one takes as
  // little as it can only once in a while. Twenty of each in a row said that copies pay in one process of seven where they do not.
  static constexpr int kRounds = 20;
  static constexpr int kPlainOnes = 3;
  static const bool pays = [] {
    std::vector<std::byte> from(kBytes, std::byte{1}), to(kBytes, std::byte{2}), again(kBytes, std::byte{3});
    bool isComplete = true;
    auto call = std::chrono::nanoseconds::max(), plain = call;
    for (int round = 0; round < kRounds && isComplete; ++round) {
      call = std::min(
          call, timeOf([&] { isComplete = copyFrom(getpid(), to.data(), reinterpret_cast<uint64_t>(from.data()), kBytes).ok(); }));
      for (int i = 0; i < kPlainOnes; ++i)
        plain = std::min(plain, timeOf([&] {
                           std::memcpy(again.data(), from.data(), kBytes);
                           asm volatile("" : : "r"(again.data()) : "memory");
                         }));
    }
    return isComplete && call < kWorthCopies * plain;
  }();
  return pays;
}

}  // namespace tutti::transport::local
