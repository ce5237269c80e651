// Time as a parameter: real for the product, moved by hand in tests and the simulator.
//
// Owner: the caller; realClock() lives for ever and has no state. Every member may be called by any thread.
// 1. now() never goes back. Its zero is arbitrary: only differences mean something.
// 2. A ManualClock stands still except for advance() and, with Sleep::MovesTime, sleepFor().
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace tutti {

using Nanoseconds = std::chrono::nanoseconds;

class Clock {
 public:
  virtual ~Clock();
  virtual Nanoseconds now() const = 0;
  /// Returns when at least `duration` has passed on this clock; at once when it is not positive.
  virtual void sleepFor(Nanoseconds duration) = 0;

 protected:
  Clock() = default;
  Clock(const Clock&) = default;
  Clock& operator=(const Clock&) = default;
};

/// The machine's monotonic clock.
Clock& realClock();

class ManualClock final : public Clock {
 public:
  enum class Sleep : uint8_t {
    MovesTime,  ///< A sleeper moves the time itself: for tests with one thread.
    Blocks,     ///< A sleeper waits until another thread advances the clock.
  };

  explicit ManualClock(Sleep mode = Sleep::MovesTime, Nanoseconds start = Nanoseconds(0)) : mode_(mode), now_(start.count()) {}

  Nanoseconds now() const override;
  void sleepFor(Nanoseconds duration) override;
  void advance(Nanoseconds duration);

  /// Threads that are blocked in sleepFor(): a test waits for its sleeper before it advances.
  int sleepers() const;

 private:
  const Sleep mode_;
  std::atomic<int64_t> now_;  ///< Nanoseconds. Stored under mutex_ (release), read anywhere (acquire in now()).
  mutable std::mutex mutex_;
  std::condition_variable moved_;
  int sleepers_ = 0;  ///< Under mutex_.
};

}  // namespace tutti
