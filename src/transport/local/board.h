// The latest calls of one rank, for its peers to compare with their own.
//
// Owner: the Hub, one for each rank. One writer at a time: whoever drives the rank. Any thread reads.
// 1. Entry sequence % kEntries holds that call until the rank is kEntries calls further; a reader then finds nothing, never the
//    wrong call.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

namespace tutti::transport::local {

class Board {
 public:
  /// Says that the rank has come to its call number `sequence`.
  void post(uint64_t sequence, uint64_t signature) {
    Entry& entry = entries_[sequence % kEntries];
    entry.number.store(0, std::memory_order_relaxed);
    // release: a reader that sees this signature (acquire) also sees that the entry is being changed
    entry.signature.store(signature, std::memory_order_release);
    entry.number.store(sequence + 1, std::memory_order_release);  // pairs with the first acquire in find()
  }

  /// The signature of the rank's call number `sequence`, if the rank has come to it and not far beyond.
  std::optional<uint64_t> find(uint64_t sequence) const {
    const Entry& entry = entries_[sequence % kEntries];
    if (entry.number.load(std::memory_order_acquire) != sequence + 1) return std::nullopt;
    const uint64_t signature = entry.signature.load(std::memory_order_acquire);
    if (entry.number.load(std::memory_order_relaxed) != sequence + 1) return std::nullopt;
    return signature;
  }

 private:
  static constexpr uint64_t kEntries = 64;
  struct Entry {
    std::atomic<uint64_t> number{0};  ///< sequence + 1; 0 while it is being written
    std::atomic<uint64_t> signature{0};
  };
  std::array<Entry, kEntries> entries_;
};

}  // namespace tutti::transport::local
