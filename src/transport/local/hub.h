// Where the ranks of one communicator in one process meet: their pipes and windows, made when the first side asks, and
// their error latches.
//
// Owner: shared by the communicators of all its ranks; freed with the last. Any thread may call; pipes and windows are opened
// under one lock, at set-up only.
// 1. Both sides of a pipe get the same one, whoever asks first; its size is the first asker's.
// 2. A thread that touches peers' memory for a rank does so between enter() and leave() of that rank.
// 3. After failAll() and waitQuiet() no other rank touches this rank's buffers any more.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "core/error_latch.h"
#include "transport/local/board.h"
#include "transport/local/pipe.h"
#include "transport/local/waits.h"
#include "transport/local/window.h"

namespace tutti::transport::local {

struct PipeKey {
  ChannelId channel;
  uint8_t port = 0;
  Rank from;
  Rank to;
  friend bool operator<(const PipeKey& a, const PipeKey& b) {
    return std::tie(a.channel, a.port, a.from, a.to) < std::tie(b.channel, b.port, b.from, b.to);
  }
};

/// One rank's place at the hub. A view of it is what the hot path keeps.
struct alignas(kCacheLine) Member {
  ErrorLatch latch;
  Board board;
  std::atomic<uint64_t> departed{UINT64_MAX};  ///< written once, by the rank that ends
  std::atomic<bool> inside{false};  ///< written by the thread that drives the rank; read by waitQuiet
  bool needsFence = false;  ///< the kernel offers no barrier in all threads: every enter() has one of its own. Set once, by the Hub

  /// Marks that a thread is about to touch peers' memory for the rank; false when its latch has tripped.
  bool enter() {
    inside.store(true, std::memory_order_relaxed);  // ordered before the latch's load by waitQuiet's barrier
    if (needsFence) std::atomic_thread_fence(std::memory_order_seq_cst);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (!latch.tripped()) [[likely]]
      return true;
    leave();
    return false;
  }
  void leave() { inside.store(false, std::memory_order_release); }  // pairs with waitQuiet
};

class Hub {
 public:
  explicit Hub(int32_t ranks);

  Result<PipeView> pipe(const PipeKey& key, uint32_t slots, uint64_t slotBytes);
  /// The window of `rank`: cells of `cellBytes` for every rank.
  Result<WindowView> window(Rank rank, uint64_t cellBytes);

  int32_t ranks() const { return static_cast<int32_t>(members_.size()); }
  ErrorLatch& latch(Rank rank) { return members_[index(rank)].latch; }
  Board& board(Rank rank) { return members_[index(rank)].board; }
  Waits& waits() { return waits_; }

  /// The rank has destroyed its communicator, after `calls` collectives. Everything that it sent can be seen by who sees this.
  void depart(Rank rank, uint64_t calls) {
    members_[index(rank)].departed.store(calls, std::memory_order_release);
  }  // pairs with departed()
  /// How many collectives the rank took part in before it departed; nothing while it is there.
  std::optional<uint64_t> departed(Rank rank) const {
    const uint64_t calls = members_[index(rank)].departed.load(std::memory_order_acquire);  // pairs with depart()
    return calls == kPresent ? std::nullopt : std::optional(calls);
  }

  /// Trips every rank's latch with `cause`.
  void failAll(const Status& cause);
  /// The same without words, for want of memory; cannot fail.
  void failAll(Code code) noexcept;

  /// The rank's place; stays where it is as long as the hub.
  Member& member(Rank rank) { return members_[index(rank)]; }
  bool enter(Rank rank) { return member(rank).enter(); }
  void leave(Rank rank) { member(rank).leave(); }

  /// After failAll(): returns when every thread that was inside has left, which each does after a few slices.
  void waitQuiet();

 private:
  static constexpr uint64_t kPresent = UINT64_MAX;
  static size_t index(Rank rank) { return static_cast<size_t>(rank.value); }

  const bool needsFence_;
  std::vector<Member> members_;
  Waits waits_;
  std::mutex mutex_;
  std::map<PipeKey, std::unique_ptr<Pipe>> pipes_;
  std::vector<std::unique_ptr<Window>> windows_;
};

}  // namespace tutti::transport::local
