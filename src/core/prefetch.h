// Hints that bring a cache line near while the thread goes on. Any address is fine, also one that is not mapped. Any thread.
#pragma once

namespace tutti {

/// For reading.
inline void prefetch(const void* line) { __builtin_prefetch(line); }

/// For writing: other caches give their copies up.
inline void prefetchForWrite(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace tutti
