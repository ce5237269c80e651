// Calls with a key each, one after the other: of a rank, for whoever has to tell where it stands.
//
// Lies in memory that processes share. One writer at a time. Any thread of any process reads.
// 1. The latest kEntries - 1 can be read, in their order; of older ones a reader finds nothing, never another call in their place.
// 2. Zeroed memory is an empty ring.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>

#include "core/call.h"

namespace tutti::transport::device {

class CallRing {
 public:
  static constexpr uint64_t kEntries = 512;

  /// `key` is not 0.
  void write(uint64_t key, const Call& call) {
    const uint64_t written = written_.load(std::memory_order_relaxed);
    Entry& entry = entries_[written % kEntries];
    entry.key.store(0, std::memory_order_relaxed);
    // release: a reader that sees one of these words (acquire) also sees that the entry is being changed
    entry.kind.store(packKind(call), std::memory_order_release);
    entry.count.store(call.count, std::memory_order_release);
    entry.sequence.store(call.sequence, std::memory_order_release);
    entry.key.store(key, std::memory_order_release);         // pairs with the first acquire in visit()
    written_.store(written + 1, std::memory_order_release);  // pairs with visit()
  }

  /// Calls, ever.
  uint64_t written() const { return written_.load(std::memory_order_acquire); }  // pairs with write()

  /// `wants(key)`, and where that is true `take(key, call)`: from the oldest that is there to the latest.
  template <class Wants, class Take>
  void visit(Wants&& wants, Take&& take) const {
    const uint64_t written = written_.load(std::memory_order_acquire);  // pairs with write()
    for (uint64_t i = written < kEntries ? 0 : written - kEntries + 1; i < written; ++i) {
      const Entry& entry = entries_[i % kEntries];
      const uint64_t key = entry.key.load(std::memory_order_acquire);  // pairs with write()
      if (key == 0 || !wants(key)) continue;
      const uint64_t kind = entry.kind.load(std::memory_order_acquire);
      const uint64_t count = entry.count.load(std::memory_order_acquire);
      const uint64_t sequence = entry.sequence.load(std::memory_order_acquire);
      const bool isWhole = entry.key.load(std::memory_order_acquire) == key;
      // Who has seen anything of the call that takes this place, which has the same key at most by chance, sees this count as well.
      if (isWhole && written_.load(std::memory_order_relaxed) < i + kEntries) take(key, unpack(kind, count, sequence));
    }
  }

 private:
  struct Entry {
    std::atomic<uint64_t> key;   ///< 0: none, or it is being written
    std::atomic<uint64_t> kind;  ///< collective, type, operation, direction, and root or peer
    std::atomic<uint64_t> count;
    std::atomic<uint64_t> sequence;
  };
  static uint64_t packKind(const Call& call) {
    return static_cast<uint64_t>(static_cast<uint32_t>(call.root)) << 32 | (call.receives ? uint64_t{1} << 24 : 0) |
           static_cast<uint64_t>(call.opCode) << 16 | static_cast<uint64_t>(call.type) << 8 | static_cast<uint64_t>(call.collective);
  }
  static Call unpack(uint64_t kind, uint64_t count, uint64_t sequence) {
    Call call;
    call.collective = static_cast<Collective>(kind & 0xff);
    call.type = static_cast<DataType>(kind >> 8 & 0xff);
    call.opCode = static_cast<uint8_t>(kind >> 16 & 0xff);
    call.receives = (kind >> 24 & 1) != 0;
    call.root = static_cast<int32_t>(kind >> 32);
    call.count = count;
    call.sequence = sequence;
    return call;
  }

  std::atomic<uint64_t> written_;  ///< ever
  std::array<Entry, kEntries> entries_;
};

}  // namespace tutti::transport::device
