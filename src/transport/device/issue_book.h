// The order in which a rank has issued its latest calls, which is the order in which its GPU carries them out, and whether it is held up
// before a launch: what tells ranks apart whose calls can never meet.
//
// Lies on the page, one for each rank. One writer at a time: the thread that launches for the rank. Any thread of any process reads.
// 1. The calls of a group have one number, from 1; those of a group with a higher one begin when all of it has ended.
// 2. Where calls are compared, a call is said elsewhere (MessageBook, Board) before it is written here: who has not found it there after it
//    had read this book knows that it comes after all that it has read.
// 3. Once the rank has captured a call the book is closed: when that one runs, or how often, nobody sees.
// 4. Zeroed memory is an empty book.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/ids.h"
#include "transport/device/call_ring.h"

namespace tutti::transport::device {

class IssueBook {
 public:
  struct Issued {
    uint64_t group;
    Call call;
  };

  void write(uint64_t group, const Call& call) { calls_.write(group, call); }
  /// Before what the rank has said of its messages is taken back: who has missed that sees this.
  void close() {
    isClosed_.store(1, std::memory_order_release);  // pairs with isClosed()
    std::atomic_thread_fence(std::memory_order_release);
  }
  bool isClosed() const { return isClosed_.load(std::memory_order_acquire) != 0; }

  uint64_t written() const { return calls_.written(); }
  /// The latest calls, the oldest first. Nothing once it has been closed.
  std::vector<Issued> read() const {
    std::vector<Issued> all;
    calls_.visit([](uint64_t) { return true; }, [&](uint64_t group, const Call& call) { all.push_back({group, call}); });
    if (isClosed()) all.clear();
    return all;
  }

  /// A rank that cannot launch its latest group yet, because another one's part of a connection is not there.
  struct HeldUp {
    uint64_t group;
    uint64_t place;  ///< of the call that needs it, among those of the group
    Rank missing;
    uint64_t episode;  ///< the same as long as nothing has come
    uint64_t looks;    ///< ever, without finding it
  };
  /// It has looked once more.
  void holdUp(uint64_t group, uint64_t place, Rank missing) {
    const uint64_t who = (group << kPlaceBits | std::min(place, kMostPlace)) << kRankBits | static_cast<uint64_t>(missing.value + 1);
    if (heldUp_.load(std::memory_order_relaxed) != who) {
      heldUp_.store(0, std::memory_order_relaxed);
      episode_.store(episode_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
      heldUp_.store(who, std::memory_order_release);
    }
    looks_.store(looks_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  void goOn() {
    if (heldUp_.load(std::memory_order_relaxed) != 0) heldUp_.store(0, std::memory_order_release);
  }
  std::optional<HeldUp> heldUp() const {
    const uint64_t who = heldUp_.load(std::memory_order_acquire);
    const uint64_t episode = episode_.load(std::memory_order_acquire);
    const uint64_t looks = looks_.load(std::memory_order_acquire);
    if (who == 0 || heldUp_.load(std::memory_order_acquire) != who) return std::nullopt;
    const Rank missing(static_cast<int32_t>(who & ((uint64_t{1} << kRankBits) - 1)) - 1);
    return HeldUp{who >> kRankBits >> kPlaceBits, who >> kRankBits & kMostPlace, missing, episode, looks};
  }

 private:
  static constexpr int kRankBits = 12, kPlaceBits = 12;
  static constexpr uint64_t kMostPlace = (uint64_t{1} << kPlaceBits) - 1;

  std::atomic<uint32_t> isClosed_;
  std::atomic<uint64_t> heldUp_;  ///< group, place and 1 + the missing rank; 0: it is not
  std::atomic<uint64_t> episode_;
  std::atomic<uint64_t> looks_;
  CallRing calls_;
};

}  // namespace tutti::transport::device
