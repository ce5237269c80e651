// The other processes of a hub: reading their memory, and keeping them from this one's.
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

#include "core/format.h"
#include "core/process_barrier.h"
#include "transport/local/hub.h"

namespace tutti::transport::local {

bool Hub::waitQuiet() {
  // After this barrier a thread either sees the tripped latch in enter(), or its `inside` is visible here.
  processBarrier();
  if (arena_->isShared()) (void)syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
  constexpr std::chrono::milliseconds kPatience(500);
  const auto since = std::chrono::steady_clock::now();
  bool haveLeft = true;
  for (int32_t r = 0; r < ranks_; ++r) {
    while (members_[r].inside.load(std::memory_order_acquire)) {  // pairs with leave()
      if (!isHere(Rank(r)) && !arena_->isRunning(processOf(Rank(r)))) break;  // who is merely cut off may go on
      if (!isHere(Rank(r)) && std::chrono::steady_clock::now() - since > kPatience) {
        haveLeft = false;
        break;
      }
      sched_yield();
    }
  }
  {
    const std::lock_guard lock(copiesMutex_);
    for (SharedCopy* copy : copies_) copy->stop();
  }
  if (remote() != nullptr) remote()->quiet();
  return haveLeft;
}

std::optional<int32_t> Hub::lookForDead() {
  constexpr int64_t kBetweenNs = 10'000'000;
  constexpr int32_t kAtOnce = 16;
  constexpr int32_t kLooks = 32;  // after so many, everybody has been looked at
  if (!arena_->isShared()) return std::nullopt;
  const int64_t now = std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  int64_t looked = lookedNs_.load(std::memory_order_relaxed);
  if (now - looked < kBetweenNs || !lookedNs_.compare_exchange_strong(looked, now, std::memory_order_relaxed)) return std::nullopt;
  for (int32_t i = 0; i < std::min(ranks_, std::max(kAtOnce, ranks_ / kLooks)); ++i) {
    const Rank rank(static_cast<int32_t>(nextToLook_.fetch_add(1, std::memory_order_relaxed) % static_cast<uint32_t>(ranks_)));
    if (isHere(rank) || !isOnHost(rank) || departed(rank)) continue;
    // In this order: a process departs before it ends.
    if (!isAlive(rank) && !departed(rank)) return processOf(rank);
  }
  return std::nullopt;
}

void Hub::watch(SharedCopy& copy) {
  const std::lock_guard lock(copiesMutex_);
  copies_.push_back(&copy);
}

void Hub::unwatch(SharedCopy& copy) noexcept {
  const std::lock_guard lock(copiesMutex_);
  std::erase(copies_, &copy);
}

Neighbour* Hub::neighbour(Rank rank) {
  if (isHere(rank)) return nullptr;
  const int32_t process = processOf_[index(rank)];
  const ProcessEntry* entry = arena_->entry(process);
  if (entry == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Neighbour>& neighbour = neighbours_[process];
  if (!neighbour)
    neighbour = std::make_unique<Neighbour>(*entry, true, [arena = arena_.get(), process] { return arena->isAlive(process); });
  return neighbour.get();
}

uint32_t Hub::reach(Rank rank) {
  if (isHere(rank)) return kReachesAll;
  const Neighbour* process = neighbour(rank);
  return process == nullptr ? kReachesNothing : process->reach();
}

/// Another process that has the thread: "process 4711 with rank 2", or without a rank where it has none of this hub. One that seems to have
/// this process's number is of another namespace, and so are its threads.
std::optional<Hub::Owner> Hub::ownerOf(int thread) const {
  if (thread <= 0 || !arena_->isShared()) return std::nullopt;
  for (const int32_t process : arena_->members_) {
    const ProcessEntry* const entry = process == arena_->self() ? nullptr : arena_->entry(process);
    const auto pid = static_cast<int32_t>(entry == nullptr ? 0 : entry->pid.load(std::memory_order_relaxed));
    if (pid <= 0 || pid == getpid() || access(tutti::format("/proc/{}/task/{}", pid, thread).c_str(), F_OK) != 0) continue;
    const auto* const rank = std::find(processOf_, processOf_ + ranks_, process);
    const std::string with = rank == processOf_ + ranks_ ? "" : tutti::format(" with rank {}", rank - processOf_);
    return Owner{pid, tutti::format("process {}{}", pid, with)};
  }
  return std::nullopt;
}

std::string Hub::describeHolder() const {
  const auto owner = ownerOf(mutex().holder());
  return owner ? owner->text : "another process of this host";
}

/// Who is stopped keeps what it has, so that one look is enough, if it had the lock before and behind it.
std::string Hub::describeStopped() const {
  for (const auto& hub : arena_->hubs()) {
    const int thread = hub->mutex().holder();
    const auto owner = ownerOf(thread);
    if (owner && isStopped(owner->pid, thread) && hub->mutex().holder() == thread)
      return owner->text + " was stopped while it had the lock of what ranks share";
  }
  return {};
}

/// Why the lock was not to be had without a bound. The ranks fail with that, if they have not failed.
Status Hub::lockLost() {
  if (patience_.hasFailed()) return members_[firstHere_].latch.status();
  const Status cause = error(
      Code::RemoteError, "{} has the lock of what ranks share for longer than the deadline: it may have been stopped", describeHolder());
  failAll(cause);
  return cause;
}

}  // namespace tutti::transport::local
