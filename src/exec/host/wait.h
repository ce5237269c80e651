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

class Waiter {
 public:
  /// `spins`: tries before the core is given away. Few where threads outnumber cores: a spinning thread then keeps the one it
  /// waits for from running.
  explicit Waiter(int32_t spins) : Waiter(spins, kYields) {}
  /// Where microseconds do not count. It soon sleeps: where others compute, every yield gives the core away for milliseconds.
  static Waiter forSetUp() { return Waiter(kSetUpSpins, kSetUpYields); }

  /// Something moved: start again from spinning.
  void reset() { spun_ = given_ = 0; }

  /// Whether it still expects to be served at once.
  bool spins() const { return given_ == 0; }

  /// Called once after every try that moved nothing. `givesWay`: whoever could end the wait needs this core.
  void pause(bool givesWay = false) {
    if (!givesWay && spun_ < spins_) {
      ++spun_;
      return cpuPause();
    }
    const int32_t n = given_++;
    if (n < yields_) {
      sched_yield();
      return;
    }
    const int64_t extra = std::min<int64_t>(n - yields_, kMaxSleepSteps);
    const timespec nap{0, kSleepNs * (1 + extra)};
    nanosleep(&nap, nullptr);
    if (extra == kMaxSleepSteps) --given_;  // stays at the longest sleep
  }

 private:
  Waiter(int32_t spins, int32_t yields) : spins_(spins), yields_(yields) {}

  static constexpr int32_t kSetUpSpins = 20;  // whoever is missing may need this core
  static constexpr int32_t kSetUpYields = 50;
  static constexpr int32_t kYields = 4000;  // about 1 to 4 ms of giving way before the first sleep
  static constexpr int64_t kSleepNs = 20'000;
  static constexpr int64_t kMaxSleepSteps = 49;  // at most 1 ms: what a late wake-up costs at worst

  int32_t spins_;
  int32_t yields_;
  int32_t spun_ = 0;
  int32_t given_ = 0;  // how often the core was given away
};

/// Looks a few times before the driver is troubled.
template <class Condition>
bool soon(int looks, Condition&& condition) {
  for (int look = 0; look < looks; ++look)
    if (condition()) return true;
  return false;
}

}  // namespace tutti::exec::host
