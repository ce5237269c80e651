// What the two ranks of a pair say of their latest messages in one direction, so that whoever comes to a message second notices when the
// other one meant another size.
//
// Lies on the page, one for each ordered pair. Two halves, one written by the sender and one by the receiver: the thread that launches for
// that rank. Any thread of any process reads.
// 1. An entry is one word, so it is there or it is not. After kEntries more it is gone: a reader finds nothing, never another message.
// 2. Between a rank's own posts and its look at those of the other comes a full fence (seq_cst): one of the two finds what the other said.
// 3. Zeroed memory is an empty book.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

namespace tutti::transport::device {

class MessageBook {
 public:
  static constexpr uint64_t kEntries = 64;

  /// Message `number` of the pair and direction, as the receiver or the sender makes it.
  void post(bool receives, uint64_t number, uint64_t bytes) {
    entry(receives, number).store(keyOf(number) << kByteBits | (bytes & kByteMask), std::memory_order_relaxed);
  }

  /// That side posts nothing any more: what it has posted would look like other messages one day.
  void close(bool receives) {
    for (auto& word : entries_[receives ? 1 : 0]) word.store(0, std::memory_order_relaxed);
  }

  /// As that side has posted it, if it has come to it and not far beyond. Bytes modulo 2^40.
  std::optional<uint64_t> find(bool receives, uint64_t number) const {
    const uint64_t word = entry(receives, number).load(std::memory_order_relaxed);
    if (word >> kByteBits != keyOf(number)) return std::nullopt;
    return word & kByteMask;
  }

  /// Whether that side has come to it; false may be wrong for one that captures messages.
  bool hasCome(bool receives, uint64_t number) const {
    const uint64_t key = entry(receives, number).load(std::memory_order_relaxed) >> kByteBits;
    return key != 0 && (key + kKeys - keyOf(number)) % kKeys <= kKeys / 2;
  }

  /// Bytes as find() tells them.
  static uint64_t foldBytes(uint64_t bytes) { return bytes & kByteMask; }

 private:
  static constexpr int kByteBits = 40;  // more than a GPU has
  static constexpr uint64_t kByteMask = (uint64_t{1} << kByteBits) - 1;
  static constexpr uint64_t kKeys = (uint64_t{1} << (64 - kByteBits)) - 1;
  /// From 1; comes again after 2^24 - 1 messages, by which nobody is ahead of a peer: the device's queue is full long before.
  static uint64_t keyOf(uint64_t number) { return number % kKeys + 1; }
  std::atomic<uint64_t>& entry(bool receives, uint64_t number) { return entries_[receives ? 1 : 0][number % kEntries]; }
  const std::atomic<uint64_t>& entry(bool receives, uint64_t number) const { return entries_[receives ? 1 : 0][number % kEntries]; }

  alignas(64) std::array<std::atomic<uint64_t>, kEntries> entries_[2];  // of the sender, of the receiver
};

}  // namespace tutti::transport::device
