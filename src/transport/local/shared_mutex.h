// A lock that may lie in memory which processes share, and whose owner may die, or be stopped.
//
// Owner: whoever owns the memory. Any thread of any process that has it mapped. For slow paths only.
// 1. init() comes first, once, before anybody else sees it.
// 2. When an owner has died the next one gets the lock: what it protects must make sense after every single store.
// 3. An owner that is stopped keeps it. SharedLock waits for it as long as its Patience says, and then does without the lock: whoever
//    takes one looks whether it has it.
#pragma once

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>

namespace tutti::transport::local {

class SharedMutex {
 public:
  void init() {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&mutex_, &attributes);
    pthread_mutexattr_destroy(&attributes);
  }
  bool tryLock() { return isMine(pthread_mutex_trylock(&mutex_)); }
  /// False: somebody else had it all the time.
  bool lockWithin(std::chrono::nanoseconds most) {
    constexpr int64_t kSecond = 1'000'000'000;
#if defined(__SANITIZE_THREAD__)  // it does not know of pthread_mutex_clocklock
    constexpr clockid_t kClock = CLOCK_REALTIME;
    constexpr auto lockUntil = [](pthread_mutex_t* mutex, const timespec* until) { return pthread_mutex_timedlock(mutex, until); };
#else
    constexpr clockid_t kClock = CLOCK_MONOTONIC;
    constexpr auto lockUntil = [](pthread_mutex_t* mutex, const timespec* until) { return pthread_mutex_clocklock(mutex, kClock, until); };
#endif
    timespec until{};
    clock_gettime(kClock, &until);
    const int64_t nanoseconds = until.tv_nsec + most.count();
    until.tv_sec += nanoseconds / kSecond;
    until.tv_nsec = nanoseconds % kSecond;
    return isMine(lockUntil(&mutex_, &until));
  }
  void unlock() { pthread_mutex_unlock(&mutex_); }
  /// The kernel's number of the thread that has it, for texts; 0: nobody, or not known.
  int holder() const {
#ifdef __GLIBC__
    return __atomic_load_n(&mutex_.__data.__owner, __ATOMIC_RELAXED);
#else
    return 0;
#endif
  }

 private:
  bool isMine(int outcome) {
    if (outcome == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
    return outcome == 0 || outcome == EOWNERDEAD;
  }

  pthread_mutex_t mutex_;
};

/// How long a process waits for others that have the lock: as long as what it protects is of use. Any thread.
class Patience {
 public:
  static constexpr std::chrono::milliseconds kSlice{10};
  /// For what is tried again, or only explains: no time at all once a wait was given up, until somebody gets the lock again.
  static constexpr std::chrono::milliseconds kBrief{50};
  static constexpr std::chrono::milliseconds kAfterFailure{250};
  static constexpr std::chrono::seconds kSilence{10};
  static constexpr std::chrono::milliseconds kUnbounded = std::chrono::hours(100'000);

  /// Whether the ranks have failed. Set before the first wait, as is `explain`: called once when a wait has lasted for kSilence.
  std::function<bool()> hasFailed;
  std::function<void(std::chrono::milliseconds waited)> explain;

  /// The longest wait; 0: no limit.
  void limit(std::chrono::nanoseconds longest) { limitNs_.store(longest.count(), std::memory_order_relaxed); }
  std::chrono::nanoseconds limit() const { return std::chrono::nanoseconds(limitNs_.load(std::memory_order_relaxed)); }
  /// Waits for `mutex`, not longer than `most`. Whether the caller has it.
  bool lock(SharedMutex& mutex, std::chrono::milliseconds most = kUnbounded) {
    const bool wasSpent = isSpent_.load(std::memory_order_relaxed);
    const auto longest = wasSpent && most <= kBrief ? std::chrono::milliseconds(0) : most;
    const bool isMine = mutex.tryLock() || (longest.count() > 0 && wait(mutex, longest, wasSpent));
    if (isMine == wasSpent) isSpent_.store(!isMine, std::memory_order_relaxed);
    return isMine;
  }

 private:
  bool wait(SharedMutex& mutex, std::chrono::milliseconds most, bool wasSpent) {
    const auto since = std::chrono::steady_clock::now();
    for (;;) {
      if (mutex.lockWithin(std::min(kSlice, most))) return true;
      const auto waited = std::chrono::steady_clock::now() - since;
      const int64_t longest = limitNs_.load(std::memory_order_relaxed);
      if (waited >= most || (longest > 0 && waited >= std::chrono::nanoseconds(longest))) return false;
      if ((wasSpent || waited >= kAfterFailure) && hasFailed && hasFailed()) return false;
      if (waited >= kSilence && !isExplained_.exchange(true, std::memory_order_relaxed) && explain)
        explain(std::chrono::duration_cast<std::chrono::milliseconds>(waited));
    }
  }

  std::atomic<int64_t> limitNs_{0};
  std::atomic<bool> isSpent_{false};  // the latest wait was given up
  std::atomic<bool> isExplained_{false};
};

/// The lock, for as long as this lives; or nothing.
class [[nodiscard]] SharedLock {
 public:
  SharedLock(SharedMutex& mutex, Patience& patience, std::chrono::milliseconds most = Patience::kUnbounded)
      : mutex_(patience.lock(mutex, most) ? &mutex : nullptr) {}
  ~SharedLock() { unlock(); }
  SharedLock(const SharedLock&) = delete;
  SharedLock& operator=(const SharedLock&) = delete;

  explicit operator bool() const { return mutex_ != nullptr; }
  void unlock() {
    if (mutex_ != nullptr) mutex_->unlock();
    mutex_ = nullptr;
  }

 private:
  SharedMutex* mutex_;
};

}  // namespace tutti::transport::local
