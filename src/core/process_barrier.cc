#include "core/process_barrier.h"

#include <linux/membarrier.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "core/thread.h"

namespace tutti {
namespace {

bool membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

/// What the kernel says to one command. Any thread asks; once is enough.
class Registration {
 public:
  explicit constexpr Registration(int command) noexcept : command_(command) {}

  bool isIn() {
    for (;;) {
      Answer answer = answer_.load(std::memory_order_acquire);  // pairs with ask()
      if (answer == Yes || answer == No) return answer == Yes;
      // Who asked is not in this process, or has just begun, which is all the same.
      const bool isForked = answer == Asking && asker_.load(std::memory_order_relaxed) != getpid();
      if (isForked || (answer == None && answer_.compare_exchange_strong(answer, Asking, std::memory_order_relaxed))) {
        ask();
      } else {
        answer_.wait(Asking, std::memory_order_acquire);
      }
    }
  }

 private:
  enum Answer : int { None, Asking, Yes, No };

  void ask() {
    asker_.store(getpid(), std::memory_order_relaxed);
    answer_.store(membarrier(command_) ? Yes : No, std::memory_order_release);  // pairs with isIn()
    answer_.notify_all();
  }

  const int command_;
  std::atomic<Answer> answer_{None};
  std::atomic<pid_t> asker_{0};
};

constinit Registration own(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
constinit Registration ofOthers(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);

/// The kernel then answers at once.
bool hasOneThread() {
  struct stat tasks{};
  return stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink == 3;  // "." and ".." beside it
}

}  // namespace

void askForProcessBarriers() {
  const bool isAnsweredAtOnce = hasOneThread();
  for (Registration* const registration : {&own, &ofOthers}) {
    if (isAnsweredAtOnce) {
      (void)registration->isIn();
    } else if (auto asks = startThread(nullptr, "that registers for barriers", [registration] { (void)registration->isIn(); })) {
      asks->detach();
    }
  }
}

bool takesProcessBarriers() { return own.isIn(); }

bool takesBarriersOfOthers() { return ofOthers.isIn(); }

void processBarrier() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // Once registered it fails only where a filter of system calls was installed later; nobody is told of that.
  if (takesProcessBarriers()) (void)membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

}  // namespace tutti
