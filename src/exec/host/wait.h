// How a host thread waits: spins briefly, then gives its core away, then sleeps.
// Owner: the waiting function, on its stack. One thread.
#pragma once

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstdint>

namespace tutti::exec::host {

inline void cpuPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Brings a cache line here for writing, while the thread goes on.
inline void prefetchForWrite(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

class Waiter {
 public:
  /// `spins`: tries before the core is given away. Few where threads outnumber cores: a spinning thread then keeps the one it
  /// waits for from running.
  explicit Waiter(int32_t spins) : spins_(spins) {}

  /// Something moved: start again from spinning.
  void reset() { tries_ = 0; }

  /// Whether it still expects to be served at once.
  bool spins() const { return tries_ <= spins_; }

  /// Called once after every try that moved nothing.
  void pause() {
    const int32_t n = tries_++;
    if (n < spins_) return cpuPause();
    if (n < spins_ + kYields) {
      sched_yield();
      return;
    }
    const int64_t extra = std::min<int64_t>(n - spins_ - kYields, kMaxSleepSteps);
    const timespec nap{0, kSleepNs * (1 + extra)};
    nanosleep(&nap, nullptr);
    if (extra == kMaxSleepSteps) --tries_;  // stays at the longest sleep
  }

 private:
  static constexpr int32_t kYields = 4000;  // about 1 to 4 ms of giving way before the first sleep
  static constexpr int64_t kSleepNs = 20'000;
  static constexpr int64_t kMaxSleepSteps = 49;  // at most 1 ms: what a late wake-up costs at worst

  int32_t spins_;
  int32_t tries_ = 0;
};

}  // namespace tutti::exec::host
