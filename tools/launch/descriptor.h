// A file descriptor with an owner, and a moment after which nobody waits any more.
// Plain values; any thread.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "core/unique_handle.h"

namespace tutti::launch {

struct DescriptorTraits {
  using Type = int;
  static Type invalid() noexcept { return -1; }
  static void close(Type descriptor) noexcept { (void)::close(descriptor); }
};

using Descriptor = UniqueHandle<DescriptorTraits>;

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  /// Zero: never.
  static Deadline after(std::chrono::milliseconds timeout) {
    Deadline deadline;
    if (timeout.count() > 0) deadline.at_ = Clock::now() + timeout;
    return deadline;
  }
  static Deadline never() { return {}; }

  bool isOver() const { return at_ <= Clock::now(); }
  Deadline orAfter(std::chrono::milliseconds timeout) const {
    Deadline other = after(timeout);
    other.at_ = std::min(other.at_, at_);
    return other;
  }
  /// For poll(): milliseconds that are left, rounded up; -1 without an end.
  int pollMs() const {
    if (at_ == Clock::time_point::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000'000));
  }

 private:
  Clock::time_point at_ = Clock::time_point::max();
};

}  // namespace tutti::launch
