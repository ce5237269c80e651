// The cheapest steady counter of the machine, for time stamps: the time-stamp counter where there is one.
//
// No state. Any thread. Ticks of different cores of one machine agree; their rate is found by reading a real clock beside them.
#pragma once

#include <cstdint>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <chrono>
#endif

namespace tutti::observe {

inline uint64_t readTicks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

}  // namespace tutti::observe
