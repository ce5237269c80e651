// The latest message of one rank, for those who tell of its end. Unlike a collective it is not compared, so only one is kept.
//
// Owner: the Hub, one for each rank. One writer at a time: whoever drives the rank. Any thread reads.
// 1. A reader finds a message exactly as it was posted, or nothing: also when the writer has died in the middle of a post.
// 2. The sequence number is kept modulo 2^40, the peer modulo 2^18.
// 3. Zeroed memory says that there was none.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "core/call.h"

namespace tutti::transport::local {

class alignas(64) LastMessage {
 public:
  /// Says that the rank has come to this message.
  void post(const Call& message) {
    head_.store(0, std::memory_order_relaxed);
    count_.store(message.count, std::memory_order_release);  // a reader that sees it (acquire) also sees that the head is gone
    head_.store(pack(message), std::memory_order_release);   // pairs with the first acquire in find()
  }

  std::optional<Call> find() const {
    const uint64_t head = head_.load(std::memory_order_acquire);
    const uint64_t count = count_.load(std::memory_order_acquire);
    if (head == 0 || head_.load(std::memory_order_relaxed) != head) return std::nullopt;
    return unpack(head, count);
  }

 private:
  static constexpr int kSequenceBits = 40;
  static constexpr int kPeerBits = 18;
  static constexpr int kTypeBits = 4;
  static constexpr uint64_t mask(int bits) { return (uint64_t{1} << bits) - 1; }
  /// From the top: a one, the direction, the type, the peer, the sequence number.
  static uint64_t pack(const Call& message) {
    const uint64_t top = uint64_t{1} << 1 | (message.receives ? 1 : 0);
    const uint64_t peer = static_cast<uint64_t>(static_cast<uint32_t>(message.root)) & mask(kPeerBits);
    return ((top << kTypeBits | static_cast<uint64_t>(message.type)) << kPeerBits | peer) << kSequenceBits |
           (message.sequence & mask(kSequenceBits));
  }
  static Call unpack(uint64_t head, uint64_t count) {
    Call message;
    message.collective = Collective::SendRecv;
    message.sequence = head & mask(kSequenceBits);
    message.root = static_cast<int32_t>(head >> kSequenceBits & mask(kPeerBits));
    message.type = static_cast<DataType>(head >> (kSequenceBits + kPeerBits) & mask(kTypeBits));
    message.receives = (head >> (kSequenceBits + kPeerBits + kTypeBits) & 1) != 0;
    message.count = count;
    return message;
  }

  std::atomic<uint64_t> head_{0};  ///< 0: none, or one is being posted
  std::atomic<uint64_t> count_{0};
};

}  // namespace tutti::transport::local
