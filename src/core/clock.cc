#include "core/clock.h"

#include <cerrno>
#include <ctime>

namespace tutti {
namespace {

class RealClock final : public Clock {
 public:
  Nanoseconds now() const override {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return std::chrono::seconds(time.tv_sec) + Nanoseconds(time.tv_nsec);
  }

  void sleepFor(Nanoseconds duration) override {
    if (duration.count() <= 0) return;
    // An absolute end: a signal that interrupts the sleep does not lengthen it.
    const Nanoseconds end = now() + duration;
    const timespec until{static_cast<time_t>(end.count() / 1'000'000'000), static_cast<long>(end.count() % 1'000'000'000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
    }
  }
};

}  // namespace

Clock::~Clock() = default;

Clock& realClock() {
  // Never destroyed: threads may still ask for the time while the process exits.
  static Clock* const clock = new RealClock;
  return *clock;
}

Nanoseconds ManualClock::now() const { return Nanoseconds(now_.load(std::memory_order_acquire)); }

void ManualClock::advance(Nanoseconds duration) {
  if (duration.count() <= 0) return;
  {
    std::lock_guard lock(mutex_);
    now_.store(now_.load(std::memory_order_relaxed) + duration.count(), std::memory_order_release);
  }
  moved_.notify_all();
}

void ManualClock::sleepFor(Nanoseconds duration) {
  if (duration.count() <= 0) return;
  if (mode_ == Sleep::MovesTime) return advance(duration);
  std::unique_lock lock(mutex_);
  const int64_t end = now_.load(std::memory_order_relaxed) + duration.count();
  ++sleepers_;
  moved_.wait(lock, [&] { return now_.load(std::memory_order_relaxed) >= end; });
  --sleepers_;
}

int ManualClock::sleepers() const {
  std::lock_guard lock(mutex_);
  return sleepers_;
}

}  // namespace tutti
