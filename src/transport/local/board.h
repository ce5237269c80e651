// The latest collectives of one rank, for its peers to compare with their own.
//
// Owner: the Hub, one for each rank. One writer at a time: whoever drives the rank. Any thread reads.
// 1. Entry sequence % kEntries holds that call until the rank is kEntries calls further; a reader then finds nothing, never the
//    wrong call.
// 2. A call is kept exactly: nothing of its count or root is cut off.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "core/call.h"

namespace tutti::transport::local {

class Board {
 public:
  /// Says that the rank has come to this call, number `call.sequence`.
  void post(const Call& call) {
    Entry& entry = entries_[call.sequence % kEntries];
    entry.number.store(0, std::memory_order_relaxed);
    // release: a reader that sees one of these words (acquire) also sees that the entry is being changed
    entry.kind.store(packKind(call), std::memory_order_release);
    entry.count.store(call.count, std::memory_order_release);
    entry.number.store(call.sequence + 1, std::memory_order_release);  // pairs with the first acquire in find()
  }

  /// The rank's call number `sequence`, if the rank has come to it and not far beyond.
  std::optional<Call> find(uint64_t sequence) const {
    const Entry& entry = entries_[sequence % kEntries];
    if (entry.number.load(std::memory_order_acquire) != sequence + 1) return std::nullopt;
    const uint64_t kind = entry.kind.load(std::memory_order_acquire);
    const uint64_t count = entry.count.load(std::memory_order_acquire);
    if (entry.number.load(std::memory_order_relaxed) != sequence + 1) return std::nullopt;
    return unpack(kind, count, sequence);
  }

  /// Whether find(call.sequence) would give exactly this call, or nothing: what nearly every look finds, for less. False may be wrong.
  bool hasNothingBut(const Call& call) const {
    const Entry& entry = entries_[call.sequence % kEntries];
    if (entry.number.load(std::memory_order_acquire) != call.sequence + 1) return true;  // pairs with post()
    const bool isSame = entry.kind.load(std::memory_order_acquire) == packKind(call);
    return isSame && entry.count.load(std::memory_order_acquire) == call.count;
  }

  /// How many calls the rank has come to; may miss the one that is being posted.
  uint64_t begun() const {
    uint64_t most = 0;
    for (const Entry& entry : entries_) most = std::max(most, entry.number.load(std::memory_order_acquire));  // pairs with post()
    return most;
  }

 private:
  static constexpr uint64_t kEntries = 64;
  struct alignas(32) Entry {
    std::atomic<uint64_t> number{0};  ///< sequence + 1; 0 while it is being written
    std::atomic<uint64_t> kind{0};    ///< collective, type, operation and root
    std::atomic<uint64_t> count{0};
  };
  static uint64_t packKind(const Call& call) {
    return static_cast<uint64_t>(static_cast<uint32_t>(call.root)) << 32 | static_cast<uint64_t>(call.opCode) << 16 |
           static_cast<uint64_t>(call.type) << 8 | static_cast<uint64_t>(call.collective);
  }
  static Call unpack(uint64_t kind, uint64_t count, uint64_t sequence) {
    Call call;
    call.collective = static_cast<Collective>(kind & 0xff);
    call.type = static_cast<DataType>(kind >> 8 & 0xff);
    call.opCode = static_cast<uint8_t>(kind >> 16 & 0xff);
    call.root = static_cast<int32_t>(kind >> 32);
    call.count = count;
    call.sequence = sequence;
    return call;
  }
  std::array<Entry, kEntries> entries_;
};

}  // namespace tutti::transport::local
