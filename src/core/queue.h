// Bounded queues between threads: SpscQueue (one producer) and MpscQueue (several), each with one consumer. No locks, no
// allocation after construction, no system call; a full or empty queue says so and never waits.
//
// Owner: one of the two sides or a third; it must outlive both. Elements left over are destroyed with the queue.
// 1. Capacity is rounded up to a power of two and never grows.
// 2. SpscQueue: tryPush() by one thread at a time, tryPop() by one thread at a time.
// 3. MpscQueue: tryPush() by any thread; tryPop() by one thread at a time. Elements of one producer keep their order.
// 4. A producer stopped in the middle of MpscQueue::tryPush() hides what was pushed behind it until it goes on.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

namespace tutti {

/// Words written by different threads are kept this far apart.
inline constexpr size_t kCacheLineBytes = 64;

namespace detail {

/// Room for one element that may or may not be there.
template <class T>
struct Cell {
  alignas(T) std::byte bytes[sizeof(T)];

  T* get() noexcept { return std::launder(reinterpret_cast<T*>(bytes)); }
  void put(T&& value) noexcept { ::new (static_cast<void*>(bytes)) T(std::move(value)); }
  T take() noexcept {
    T value = std::move(*get());
    get()->~T();
    return value;
  }
};

constexpr size_t ringCapacity(size_t wanted) { return std::bit_ceil(wanted < 2 ? size_t{2} : wanted); }

}  // namespace detail

template <class T>
class SpscQueue {
  static_assert(std::is_nothrow_move_constructible_v<T> && std::is_nothrow_destructible_v<T>);

 public:
  explicit SpscQueue(size_t capacity)
      : mask_(detail::ringCapacity(capacity) - 1), cells_(std::make_unique_for_overwrite<detail::Cell<T>[]>(mask_ + 1)) {}
  SpscQueue(const SpscQueue&) = delete;
  SpscQueue& operator=(const SpscQueue&) = delete;
  ~SpscQueue() {
    while (tryPop()) {
    }
  }

  size_t capacity() const noexcept { return mask_ + 1; }

  /// Producer. False when full; `value` is moved from only on success.
  bool tryPush(T&& value) noexcept {
    const size_t tail = tail_.load(std::memory_order_relaxed);  // own word
    if (tail - knownHead_ > mask_) {
      knownHead_ = head_.load(std::memory_order_acquire);  // pairs with the release in tryPop(): the cell is empty again
      if (tail - knownHead_ > mask_) return false;
    }
    cells_[tail & mask_].put(std::move(value));
    tail_.store(tail + 1, std::memory_order_release);  // pairs with the acquire in tryPop()
    return true;
  }

  /// Consumer. Empty when the queue is.
  std::optional<T> tryPop() noexcept {
    const size_t head = head_.load(std::memory_order_relaxed);  // own word
    if (head == knownTail_) {
      knownTail_ = tail_.load(std::memory_order_acquire);  // pairs with the release in tryPush(): the element is complete
      if (head == knownTail_) return std::nullopt;
    }
    std::optional<T> value(cells_[head & mask_].take());
    head_.store(head + 1, std::memory_order_release);  // pairs with the acquire in tryPush()
    return value;
  }

 private:
  const size_t mask_;
  const std::unique_ptr<detail::Cell<T>[]> cells_;
  alignas(kCacheLineBytes) std::atomic<size_t> tail_{0};  ///< Producer writes, consumer reads: elements ever pushed.
  size_t knownHead_ = 0;                                  ///< Producer only: head_ as last read.
  alignas(kCacheLineBytes) std::atomic<size_t> head_{0};  ///< Consumer writes, producer reads: elements ever popped.
  size_t knownTail_ = 0;                                  ///< Consumer only: tail_ as last read.
};

template <class T>
class MpscQueue {
  static_assert(std::is_nothrow_move_constructible_v<T> && std::is_nothrow_destructible_v<T>);

 public:
  explicit MpscQueue(size_t capacity)
      : mask_(detail::ringCapacity(capacity) - 1), slots_(std::make_unique_for_overwrite<Slot[]>(mask_ + 1)) {
    for (size_t i = 0; i <= mask_; ++i) slots_[i].turn.store(i, std::memory_order_relaxed);
  }
  MpscQueue(const MpscQueue&) = delete;
  MpscQueue& operator=(const MpscQueue&) = delete;
  ~MpscQueue() {
    while (tryPop()) {
    }
  }

  size_t capacity() const noexcept { return mask_ + 1; }

  /// Any thread. False when full; `value` is moved from only on success.
  bool tryPush(T&& value) noexcept {
    size_t tail = tail_.load(std::memory_order_relaxed);
    for (;;) {
      Slot& slot = slots_[tail & mask_];
      const size_t turn = slot.turn.load(std::memory_order_acquire);  // pairs with the release in tryPop(): the cell is empty
      const auto ahead = static_cast<std::ptrdiff_t>(turn - tail);
      if (ahead < 0) return false;  // still holds the element of one lap ago
      if (ahead > 0) {              // another producer took this place
        tail = tail_.load(std::memory_order_relaxed);
        continue;
      }
      // relaxed: tail_ only shares out places among producers; the element itself is published by `turn`.
      if (tail_.compare_exchange_weak(tail, tail + 1, std::memory_order_relaxed)) {
        slot.cell.put(std::move(value));
        slot.turn.store(tail + 1, std::memory_order_release);  // pairs with the acquire in tryPop()
        return true;
      }
    }
  }

  /// Consumer. Empty when nothing complete is at the front.
  std::optional<T> tryPop() noexcept {
    Slot& slot = slots_[head_ & mask_];
    // acquire: pairs with the release in tryPush(): the element is complete.
    if (slot.turn.load(std::memory_order_acquire) != head_ + 1) return std::nullopt;
    std::optional<T> value(slot.cell.take());
    slot.turn.store(head_ + mask_ + 1, std::memory_order_release);  // pairs with the acquire in tryPush()
    ++head_;
    return value;
  }

 private:
  struct Slot {
    /// Equal to a place: empty, for the producer of that place to fill. Place + 1: full. Written by whoever has the turn.
    std::atomic<size_t> turn;
    detail::Cell<T> cell;
  };

  const size_t mask_;
  const std::unique_ptr<Slot[]> slots_;
  alignas(kCacheLineBytes) std::atomic<size_t> tail_{0};  ///< Producers: next place to fill.
  alignas(kCacheLineBytes) size_t head_ = 0;              ///< Consumer only: next place to empty.
};

}  // namespace tutti
