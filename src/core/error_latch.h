// The first error of a communicator: set once, from any thread, and read by everybody who waits.
//
// Owner: where the ranks of a communicator meet (one for each rank). Any thread may call anything.
// 1. The first trip wins; later ones change nothing.
// 2. tripped() is one relaxed load, for hot waits; text and code are complete once code() returned an error.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>

#include "core/status.h"

namespace tutti {

class ErrorLatch {
 public:
  /// True when this call was the first.
  bool trip(Status cause) {
    const std::lock_guard lock(mutex_);
    if (tripped()) return false;
    status_ = std::move(cause);
    code_.store(status_.code(), std::memory_order_release);  // pairs with the acquire in code()
    return true;
  }
  /// The same without words, where there is no memory for them.
  void trip(Code code) noexcept {
    Code none = Code::Ok;
    (void)code_.compare_exchange_strong(none, code, std::memory_order_release);  // pairs with the acquire in code()
  }
  bool tripped() const { return code_.load(std::memory_order_relaxed) != Code::Ok; }
  Code code() const { return code_.load(std::memory_order_acquire); }  // pairs with the release in trip()
  Status status() const {
    const std::lock_guard lock(mutex_);
    if (status_.ok() && tripped()) return Status(code(), "out of memory");
    return status_;
  }

 private:
  std::atomic<Code> code_{Code::Ok};
  mutable std::mutex mutex_;
  Status status_;
};

}  // namespace tutti
