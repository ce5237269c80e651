#include "core/thread.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <csignal>
#include <system_error>
#include <utility>

#include "core/hash.h"
#include "core/host_name.h"

namespace tutti {

Result<std::thread> startThread(const char* name, const char* purpose, std::function<void()> run) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the thread inherits it
  Result<std::thread> started;
  try {
    started = std::thread(std::move(run));
    if (name != nullptr) (void)pthread_setname_np(started->native_handle(), name);
  } catch (const std::system_error& refused) {
    started = fail(Code::SystemError, "start the thread {}: {}", purpose, refused.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

int32_t availableCores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? std::max(1, CPU_COUNT(&cores)) : 1;
}

uint64_t availableCoreSet() {
  static const std::string boot = bootId();
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 0;
  return std::max<uint64_t>(hashText(boot.empty() ? hostName() : boot, hashText({reinterpret_cast<const char*>(&cores), sizeof cores})), 1);
}

}  // namespace tutti
