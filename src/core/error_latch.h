// The first error of a communicator: set once, from any thread, and read by everybody who waits.
//
// Owner: where the ranks of a communicator meet (one for each rank). Any thread may call anything.
// 1. The first trip wins; later ones change nothing.
// 2. tripped() is one relaxed load, for hot waits; the text is complete once code() returned an error.
// 3. It holds no pointer and no lock, and zeroed memory is one that has not tripped: it may lie in memory that processes share, and
//    one of them may die in the middle of anything.
// 4. Words beyond kMostText bytes are cut off.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include "core/status.h"

namespace tutti {

class ErrorLatch {
 public:
  static constexpr size_t kMostText = 1008;

  /// True when this call was the first.
  bool trip(const Status& cause) {
    const std::string text = cause.text();  // before the claim: it may find no memory
    Claim free = Claim::Free;
    // acquire and release: only one writes the text; pairs with the load in hasText()
    if (!claim_.compare_exchange_strong(free, Claim::Writing, std::memory_order_acq_rel)) {
      awaitFirst();
      return false;
    }
    length_ = static_cast<uint32_t>(std::min(text.size(), kMostText));
    std::memcpy(text_, text.data(), length_);
    claim_.store(Claim::Written, std::memory_order_release);  // pairs with hasText()
    return setCode(cause.code());
  }
  /// The same without words, where there is no memory for them.
  void trip(Code code) noexcept { (void)setCode(code); }

  bool tripped() const { return code_.load(std::memory_order_relaxed) != Code::Ok; }
  Code code() const { return code_.load(std::memory_order_acquire); }  // pairs with the release in setCode()
  Status status() const {
    const Code is = code();
    if (is == Code::Ok) return {};
    if (!hasText()) return Status(is, "out of memory, or the process that knew why has died");
    return Status(is, std::string(text_, length_));
  }

 private:
  enum class Claim : uint32_t { Free, Writing, Written };

  bool setCode(Code code) noexcept {
    Code none = Code::Ok;
    return code_.compare_exchange_strong(none, code, std::memory_order_acq_rel);  // pairs with the acquire in code()
  }
  bool hasText() const { return claim_.load(std::memory_order_acquire) == Claim::Written; }  // pairs with trip()

  /// Who comes second must find the latch tripped. The first is about to do it, unless its process died just then.
  void awaitFirst() {
    constexpr int kTries = 200;
    for (int i = 0; i < kTries && !tripped(); ++i) std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (!tripped()) (void)setCode(Code::RemoteError);
  }

  std::atomic<Code> code_{Code::Ok};
  std::atomic<Claim> claim_{Claim::Free};
  uint32_t length_ = 0;   // by who claimed it, before Written
  char text_[kMostText] = {};
};
static_assert(std::atomic<Code>::is_always_lock_free);

}  // namespace tutti
