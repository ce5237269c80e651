#include "core/process_barrier.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace tutti {
namespace {

bool membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

bool takesProcessBarriers() {
  static const bool takes = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  return takes;
}

void processBarrier() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // Once registered it fails only where a filter of system calls was installed later; nobody is told of that.
  if (takesProcessBarriers()) (void)membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

}  // namespace tutti
