#include "bench/barrier.h"

#include <sched.h>

#include <chrono>
#include <thread>

namespace tutti::bench {
namespace {

constexpr int kSpins = 4000;
constexpr int kYields = 1000;
constexpr auto kNap = std::chrono::microseconds(50);

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Barrier::Barrier(int members)
    : members_(members), spins_(members <= static_cast<int>(std::thread::hardware_concurrency()) ? kSpins : 0) {}

bool Barrier::meet() {
  const uint64_t round = round_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == members_) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.store(round + 1, std::memory_order_release);  // pairs with the acquire below
    return !isGivenUp();
  }
  for (int tries = 0; round_.load(std::memory_order_acquire) == round; ++tries) {
    if (isGivenUp()) return false;
    if (tries < spins_) {
      pause();
    } else if (tries < spins_ + kYields) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
  return !isGivenUp();
}

}  // namespace tutti::bench
