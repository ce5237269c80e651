// Counts work in flight and lets its owner wait until there is none: finalize closes the gate and waits.
//
// Owner: whoever must outlive the work. Every member may be called by any thread at once.
// 1. After close() no new pass is given out; closing is for good.
// 2. waitClosed() returns when the gate is closed and every pass has come back; everything done under a pass is then visible.
// 3. The gate may be destroyed once waitClosed() returned and no thread will call enter() again.
// 4. Taking and returning a pass cost one atomic read-modify-write each; the system is called only to wake a waiter.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace tutti {

class Gate {
 public:
  /// Permission to have work in flight; given back on destruction. False when the gate was closed.
  class [[nodiscard]] Pass {
   public:
    Pass() noexcept = default;
    Pass(Pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Pass& operator=(Pass&& other) noexcept {
      if (this != &other) {
        giveBack();
        gate_ = std::exchange(other.gate_, nullptr);
      }
      return *this;
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    ~Pass() { giveBack(); }

    explicit operator bool() const noexcept { return gate_ != nullptr; }

    /// Returns the pass early.
    void giveBack() noexcept {
      if (gate_) std::exchange(gate_, nullptr)->leave();
    }

   private:
    friend class Gate;
    explicit Pass(Gate* gate) noexcept : gate_(gate) {}
    Gate* gate_ = nullptr;
  };

  Gate() noexcept = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// A pass, or an empty one when the gate is closed.
  Pass enter() noexcept {
    // acquire: pairs with close(), so that a refused caller sees why the gate was closed.
    if (state_.fetch_add(1, std::memory_order_acquire) & kClosed) [[unlikely]] {
      leave();
      return Pass();
    }
    return Pass(this);
  }

  /// Refuses new passes from now on. Returns at once; may be called again.
  void close() noexcept {
    // release: pairs with enter(). acquire: a pass that came back before is seen when nobody is left to wait for.
    if ((state_.fetch_or(kClosed, std::memory_order_acq_rel) & ~kClosed) == 0) state_.notify_all();
  }

  bool isClosed() const noexcept { return (state_.load(std::memory_order_acquire) & kClosed) != 0; }

  /// Closed, and nothing in flight: waitClosed() would not block. Pairs with leave() as waitClosed() does.
  bool isDrained() const noexcept { return state_.load(std::memory_order_acquire) == kClosed; }

  /// Blocks until the gate is closed (here or by another thread) and every pass was given back.
  void waitClosed() const noexcept {
    // acquire: pairs with the release in leave().
    for (uint32_t seen; (seen = state_.load(std::memory_order_acquire)) != kClosed;) {
      state_.wait(seen, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr uint32_t kClosed = 1U << 31;

  void leave() noexcept {
    // release: pairs with the acquire in waitClosed() and isDrained(). Nothing of *this is read after this line: the waiter may
    // destroy the gate at once, and notify_all() uses only the address.
    if (state_.fetch_sub(1, std::memory_order_release) == (kClosed | 1)) state_.notify_all();
  }

  /// Bit 31: closed. The rest: passes that are out. 32 bits, so that waiting maps onto one futex word.
  std::atomic<uint32_t> state_{0};
};

}  // namespace tutti
