// The other processes of a hub: reading their memory, and keeping them from this one's.
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>

#include "core/process_barrier.h"
#include "transport/local/hub.h"

namespace tutti::transport::local {

void Hub::waitQuiet() {
  // After this barrier a thread either sees the tripped latch in enter(), or its `inside` is visible here.
  processBarrier();
  if (arena_->isShared()) (void)syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
  constexpr std::chrono::milliseconds kPatience(500);
  const auto since = std::chrono::steady_clock::now();
  for (int32_t r = 0; r < ranks_; ++r) {
    while (members_[r].inside.load(std::memory_order_acquire)) {  // pairs with leave()
      if (!isHere(Rank(r)) && (!isAlive(Rank(r)) || std::chrono::steady_clock::now() - since > kPatience)) break;
      sched_yield();
    }
  }
  {
    const std::lock_guard lock(copiesMutex_);
    for (SharedCopy* copy : copies_) copy->stop();
  }
  if (remote_ != nullptr) remote_->quiet();
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

}  // namespace tutti::transport::local
