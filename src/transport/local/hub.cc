#include "transport/local/hub.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace tutti::transport::local {
namespace {

/// Makes every running thread of the process execute a full barrier, so that enter() can do without one. False where the kernel
/// does not offer it.
bool barrierInAllThreads(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

bool registerBarrier() {
  static const bool registered = barrierInAllThreads(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  return registered;
}

}  // namespace

Hub::Hub(int32_t ranks)
    : needsFence_(!registerBarrier()), members_(static_cast<size_t>(ranks)), waits_(ranks), windows_(static_cast<size_t>(ranks)) {
  for (Member& member : members_) member.needsFence = needsFence_;
}

void Hub::failAll(const Status& cause) {
  for (Member& member : members_) (void)member.latch.trip(cause);
}

void Hub::failAll(Code code) noexcept {
  for (Member& member : members_) member.latch.trip(code);
}

void Hub::waitQuiet() {
  // After this barrier a thread either sees the tripped latch in enter(), or its `inside` is visible here.
  if (needsFence_) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  } else {
    (void)barrierInAllThreads(MEMBARRIER_CMD_PRIVATE_EXPEDITED);  // cannot fail once registered
  }
  for (Member& member : members_)
    while (member.inside.load(std::memory_order_acquire)) sched_yield();  // pairs with leave()
}

Result<PipeView> Hub::pipe(const PipeKey& key, uint32_t slots, uint64_t slotBytes) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Pipe>& pipe = pipes_[key];
  if (!pipe) {
    auto made = Pipe::create(slots, slotBytes);
    if (!made) return tl::unexpected(std::move(made).error());
    pipe = std::make_unique<Pipe>(std::move(*made));
  }
  return pipe->view();
}

Result<WindowView> Hub::window(Rank rank, uint64_t cellBytes) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Window>& window = windows_[static_cast<size_t>(rank.value)];
  if (!window) {
    auto made = Window::create(static_cast<int32_t>(windows_.size()), cellBytes);
    if (!made) return tl::unexpected(std::move(made).error());
    window = std::make_unique<Window>(std::move(*made));
  }
  return window->view();
}

}  // namespace tutti::transport::local
