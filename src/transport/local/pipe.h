// A pipe between two ranks that see the same memory: bounded, first in first out, one writer and one reader.
//
// Owner: the Hub, or who makes a Pipe. Each side works through an end (a plain view with its own cursor), used by one thread at a time.
// 1. A slot's words other than `filled` belong to the sender until filled == message number, then to the receiver until it
//    has published a higher `freed`, then to the sender again.
// 2. `data` of a message may point into the sender's own buffer ("by reference"): the sender then keeps that memory
//    unchanged until the message is freed.
//    Only a reader that says that it can read there (`reach`) is given such a message.
// 3. Numbers start at 1 and never wrap: 2^64 messages outlast the machine.
// 4. What both sides look at holds no pointer that only one of them can follow, and zeroed memory is a fresh pipe.
// 5. There are more heads than slots: of messages that travel in their heads, or in the short places beside them, the sender may be ahead
// by
//    as many. Any other waits until fewer messages than slots are not freed.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/ids.h"
#include "core/prefetch.h"
#include "core/short_copy.h"
#include "memory/mapping.h"
#include "transport/local/offer.h"
#include "transport/local/shared_copy.h"
#include "transport/local/store_choice.h"

namespace tutti::transport::local {

inline constexpr size_t kCacheLine = 64;
inline constexpr size_t kInlineBytes = 96;  ///< payload that travels in the head
inline constexpr size_t kShortBytes = 256;  ///< payload that has a place for each head, and needs no slot

/// Two lines side by side: who fetches the first gets both from caches that fetch pairs.
struct alignas(2 * kCacheLine) SlotHead {
  std::atomic<uint64_t> filled;  ///< sender: message number (release); pairs with the acquire in RecvEnd::ready
  uint64_t signature;            ///< sender: which call the message belongs to
  uint64_t lent;                 ///< sender: address of the payload in its own memory; kInLead; 0: in inlineData, or longer, in the slot
  uint64_t bytes;                ///< sender: payload size
  union {
    std::byte inlineData[kInlineBytes];
    uint64_t wentPast;  ///< sender, of what lies in the slot: not 0 if it was stored past the cache, or others read it as well
  };
  /// Whether the slot's lines are in their sender's cache, which writes them again when they have been read.
  bool isFresh() const { return lent == 0 && bytes > kInlineBytes && wentPast == 0; }
};
static_assert(sizeof(SlotHead) == 2 * kCacheLine);

struct alignas(kCacheLine) FreedCount {
  std::atomic<uint64_t> value;  ///< receiver: messages it is done with (release); pairs with the acquire in SendEnd::refresh
  std::atomic<uint32_t> reach;  ///< receiver: what it can read (release), a set of kReaches…; pairs with the acquire in SendEnd::reach
};

/// As `lent`: the payload lies in the slot of the same message in the sender's pipe to the first of those whom it sends that to. All of
/// them free that message before the slot is written again, as long as these pipes carry the same messages, and none has more slots.
inline constexpr uint64_t kInLead = 1;

/// What of a peer's own memory a rank can read: a set of these.
inline constexpr uint32_t kReachesNothing = 0;
inline constexpr uint32_t kReachesAll = 1;      ///< the same process: an address means the same to both
inline constexpr uint32_t kReachesExports = 2;  ///< memory that ncclMemAlloc gave to the peer
inline constexpr uint32_t kReachesCopies = 4;   ///< anything, by a system call that copies

/// Values of so many bytes and more do not lie in the same place each time, as long as there is room for several.
inline constexpr uint64_t kMovingBytes = StoreChoice::kMovingBytes;

/// Where a value lies in `room` bytes that are its own, when it is number `turn` there. Lines that its reader still has in its own cache
/// take twice to four times as long to write on some machines as those that have gone from there to the cache that all cores share; so
/// what is long moves on through the room, and comes back when they have. Short values stay: their lines are fetched ahead of time.
/// Measured with `bench_mpi all_gather --from 32K --to 256K`.
inline uint64_t placeInRoom(uint64_t turn, uint64_t bytes, uint64_t room) {
  if (bytes < kMovingBytes) [[likely]]
    return 0;
  const uint64_t pitch = (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  const uint64_t places = room / pitch;
  return places < 2 ? 0 : turn % places * pitch;
}

struct PipeView {
  SlotHead* heads = nullptr;
  std::byte* memory = nullptr;  ///< staging space, written by the sender: numHeads × kShortBytes, then slots × slotBytes
  FreedCount* freed = nullptr;
  CopyDesk* desk = nullptr;
  Offer* offers = nullptr;  ///< as many as slots, of a pipe that a network fills; null: it takes none
  uint32_t numHeads = 0;  ///< a multiple of slots
  uint32_t slots = 0;
  uint64_t slotBytes = 0;
  uint64_t movingRoom = 0;  ///< of a slot: what values move through that are shorter

  /// Of a message, counted from 0.
  SlotHead& head(uint64_t message) const { return heads[message % numHeads]; }
  /// Of one that has so many bytes, at most slotBytes.
  std::byte* staging(uint64_t message, uint64_t bytes) const {
    if (bytes <= kShortBytes) return memory + (message % numHeads) * kShortBytes;
    return memory + numHeads * kShortBytes + (message % slots) * slotBytes + placeInRoom(message / slots, bytes, movingRoom);
  }
  uint64_t stagingBytes() const { return numHeads * kShortBytes + slots * slotBytes; }
  /// If it was lent, in the sender's process.
  std::byte* payload(uint64_t message) const {
    SlotHead& slot = head(message);
    if (slot.lent != 0) return reinterpret_cast<std::byte*>(slot.lent);
    return slot.bytes <= kInlineBytes ? slot.inlineData : staging(message, slot.bytes);
  }
  OfferView offering() const { return {offers, slots}; }
  /// How many messages of so many bytes may be on their way at once.
  uint32_t capacity(uint64_t bytes) const { return bytes <= kShortBytes ? numHeads : slots; }
};
static_assert(std::is_trivially_copyable_v<PipeView>);

class SendEnd {
 public:
  /// `stores` and `reader` outlive the end. `stores`: null: through the cache. `reader`: the process that reads; null: the own one, or one
  /// that copies what it was lent alone.
  explicit SendEnd(const PipeView& pipe, Rank peer = Rank(), StoreChoice* stores = nullptr, const Neighbour* reader = nullptr)
      : pipe_(pipe), peer_(peer), stores_(stores), reader_(reader) {}

  /// Whether there is room for the next message, of so many bytes.
  bool ready(uint64_t bytes) {
    const uint64_t capacity = pipe_.capacity(bytes);
    return sent_ - seenFreed_ < capacity || sent_ - refresh() < capacity;
  }
  SlotHead& head() const { return pipe_.heads[at_]; }
  /// Where a message of so many bytes goes that is not lent, if they are more than kInlineBytes.
  std::byte* staging(uint64_t bytes) const { return pipe_.staging(sent_, bytes); }
  uint64_t slotBytes() const { return pipe_.slotBytes; }
  uint32_t slots() const { return pipe_.slots; }
  /// What the receiver can read of this rank's memory; a set of kReaches….
  uint32_t reach() {
    if (reach_ == kReachesNothing) reach_ = pipe_.freed->reach.load(std::memory_order_acquire);  // pairs with Hub::pipe
    return reach_;
  }

  /// Hands the head, whose other words are written, to the receiver.
  void push(bool byReference) {
    SlotHead& slot = head();
    ++sent_;
    at_ = at_ + 1 == pipe_.numHeads ? 0 : at_ + 1;
    if (byReference) lastByReference_ = sent_;
    slot.filled.store(sent_, std::memory_order_release);  // pairs with RecvEnd::ready
    // Both lines are in the receiver's cache: what the next message needs of them comes while nobody waits for it.
    fetchNext(slot.bytes);
    // Once, and late, so that what the receiver has given back since then comes in one go.
    if (sent_ - seenFreed_ + 1 == pipe_.capacity(slot.bytes)) prefetch(pipe_.freed);
  }
  /// A message of at most kShortBytes, from values that end where they lie: all that there is to a small one.
  void pushShort(uint64_t signature, const void* value, uint64_t bytes) {
    SlotHead& slot = head();
    slot.signature = signature;
    slot.lent = 0;
    slot.bytes = bytes;
    copyShort(bytes <= kInlineBytes ? slot.inlineData : staging(bytes), value, bytes);
    push(false);
  }
  /// Whether every message sent by reference has been read.
  bool drained() { return seenFreed_ >= lastByReference_ || refresh() >= lastByReference_; }
  /// Copies a part of a lent message into the reader's memory, if the reader is about to copy it; whether it did.
  bool help() {
    if (reader_ == nullptr || seenFreed_ >= lastByReference_) return false;
    const uint64_t number = wantsHelp(*pipe_.desk);
    if (number <= seenFreed_ || number > sent_) return false;
    const SlotHead& slot = pipe_.head(number - 1);
    return helpWith(*pipe_.desk, *reader_, {number, reinterpret_cast<const std::byte*>(slot.lent), slot.bytes});
  }
  uint64_t sent() const { return sent_; }
  Rank peer() const { return peer_; }
  StoreChoice* stores() const { return stores_; }

 private:
  /// What a message as long as the last one will be written to, if that is little.
  void fetchNext(uint64_t bytes) {
    constexpr uint64_t kMostBytes = 512;
    const SlotHead& next = head();
    prefetchForWrite(&next);
    if (bytes <= kCacheLine - offsetof(SlotHead, inlineData)) return;
    if (bytes <= kInlineBytes) return prefetchForWrite(reinterpret_cast<const std::byte*>(&next) + kCacheLine);
    for (uint64_t at = 0; bytes <= kMostBytes && at < bytes; at += kCacheLine) prefetchForWrite(staging(bytes) + at);
  }
  uint64_t refresh() { return seenFreed_ = pipe_.freed->value.load(std::memory_order_acquire); }  // pairs with RecvEnd::release

  PipeView pipe_;
  Rank peer_;  // who reads: for reports only
  StoreChoice* stores_;
  const Neighbour* reader_;
  uint64_t sent_ = 0;
  uint64_t at_ = 0;  // sent_ % numHeads
  uint64_t seenFreed_ = 0;
  uint64_t lastByReference_ = 0;
  uint32_t reach_ = kReachesNothing;
};

class RecvEnd {
 public:
  explicit RecvEnd(const PipeView& pipe)
      : pipe_(pipe), giveAfter_(std::max<uint64_t>(1, std::min<uint64_t>(uint64_t{pipe.slots} - 1, pipe.numHeads / 2))), copy_(pipe.desk) {}

  bool ready() const { return head().filled.load(std::memory_order_acquire) == received_ + 1; }  // pairs with SendEnd::push
  const SlotHead& head() const { return pipe_.heads[at_]; }
  /// Where the payload lies; if it was lent, in the sender's process.
  const std::byte* payload() const {
    const SlotHead& slot = head();
    if (slot.lent != 0) return reinterpret_cast<const std::byte*>(slot.lent);
    return slot.bytes <= kInlineBytes ? slot.inlineData : pipe_.staging(received_, slot.bytes);
  }
  /// Gives the slot, and memory passed by reference, back to the sender.
  void release() {
    take();
    giveBack();
  }
  /// The same for a message that was not lent: the sender hears of several at a time, which is one line that goes to and fro instead of
  /// many, but always has a slot. Whoever turns to something else than the next message calls giveBack(), or the sender may wait in vain.
  void releaseLater() {
    take();
    if (received_ - given_ >= giveAfter_) giveBack();
  }
  void giveBack() {
    if (given_ == received_) return;
    given_ = received_;
    pipe_.freed->value.store(given_, std::memory_order_release);  // pairs with SendEnd::refresh
  }
  uint64_t received() const { return received_; }
  /// Whether messages may come straight to where they are wanted, and where message `number` is: at most received() + slots().
  bool takesOffers() const { return pipe_.offers != nullptr; }
  uint32_t slots() const { return pipe_.slots; }
  void offer(uint64_t number, std::byte* to, uint64_t bytes) const { pipe_.offering().make(number, to, bytes); }
  /// Of the next message, if it was lent by another process: number received() + 1.
  SharedCopy& copy() { return copy_; }

 private:
  void take() {
    ++received_;
    at_ = at_ + 1 == pipe_.numHeads ? 0 : at_ + 1;
    prefetch(&head());  // the next message may have come already
  }

  PipeView pipe_;
  uint64_t giveAfter_;  // messages: few enough that a slot is free, and at most half of the heads
  uint64_t received_ = 0;
  uint64_t given_ = 0;  // of those, how many the sender knows to be free
  uint64_t at_ = 0;  // received_ % numHeads
  SharedCopy copy_;
};

/// Memory that a pipe takes, and the pipe in such memory, which is zero or holds that pipe already. `ranks`: how many there may be pipes
/// between. What a rank writes to all of them at once moves through about what its second cache holds: more is slower to write, and each
/// page is made when it is written first.
uint64_t pipeBytes(uint32_t slots, uint64_t slotBytes);
PipeView pipeIn(std::byte* memory, uint32_t slots, uint64_t slotBytes, int32_t ranks = 2);

/// Owns a pipe of this process.
class Pipe {
 public:
  /// `slots` ≥ 1; `slotBytes` of staging space each (0: only inline payloads and references).
  static Result<Pipe> create(uint32_t slots, uint64_t slotBytes);
  const PipeView& view() const { return view_; }

 private:
  memory::Mapping mapping_;
  PipeView view_;
};

}  // namespace tutti::transport::local
