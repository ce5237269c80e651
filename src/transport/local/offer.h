// Offers: where the reader of a pipe that a network fills wants a payload to be put, so that it needs no copy.
//
// Owner: whoever owns the pipe, beside it. Written by the thread that works with the RecvEnd, read by the engine (progress/recv_job.h).
// 1. An offer is for one message, by its number (RecvEnd::received() + 1 is the next one). It may be made before or after the message
//    is announced; one that comes too late, or is too small, is passed over, and the message lies elsewhere.
// 2. The engine may write to offered memory from make() until that message is ready at the RecvEnd, or the pipe's job was aborted; it does
//    so once the message's header has come. Who offers it sees to it that nobody needs what is there when the peer can send it.
//    The reader finds out where the payload is by RecvEnd::payload(): nothing is to be copied when it is the offered memory.
// 3. An offer may be made for the next `slots` messages at most.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tutti::transport::local {

struct alignas(64) Offer {
  std::atomic<uint64_t> number;  ///< reader: the message that it is for (release); pairs with the acquire in OfferView::find
  std::byte* data;               ///< reader
  uint64_t bytes;                ///< reader: room
};
static_assert(sizeof(Offer) == 64);

/// A ring of as many offers as the pipe has slots; zeroed at first. No ring: no offers.
struct OfferView {
  Offer* ring = nullptr;
  uint32_t slots = 0;

  /// Reader, once for a message.
  void make(uint64_t number, std::byte* data, uint64_t bytes) const {
    Offer& offer = ring[number % slots];
    offer.data = data;
    offer.bytes = bytes;
    offer.number.store(number, std::memory_order_release);  // pairs with find()
  }
  /// Engine: the memory for a message of `bytes`; null when none is offered.
  std::byte* find(uint64_t number, uint64_t bytes) const {
    if (ring == nullptr) return nullptr;
    const Offer& offer = ring[number % slots];
    if (offer.number.load(std::memory_order_acquire) != number || offer.bytes < bytes) return nullptr;  // pairs with make()
    return offer.data;
  }
};
static_assert(std::is_trivially_copyable_v<OfferView>);

}  // namespace tutti::transport::local
