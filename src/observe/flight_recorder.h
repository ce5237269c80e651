// The flight recorder: the latest events of one rank in a fixed ring, readable while it runs and after its process is gone.
//
// Owner of the bytes: FlightMemory, or whoever mapped them; writer and reader are views. No pointer is inside the bytes.
// 1. record() by one thread at a time (a hand-over needs its own order); readers at any time, from any thread or process.
// 2. The newest `capacity` events are kept; older ones are dropped, and a reader can tell how many.
// 3. A reader never gets a torn event: one that was overwritten while it was read is left out.
// 4. record() takes no lock, does not allocate and calls nothing.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "core/status.h"
#include "core/types.h"
#include "observe/ticks.h"

namespace tutti::observe {

/// A call that runs as soon as it is made has no Enqueued; one that has not waited, also if its process ends in it, has no Started.
enum class FlightKind : uint8_t { Enqueued, Started, Finished, Failed };
std::string_view name(FlightKind kind);

/// One event, as it is recorded and read.
struct FlightEvent {
  uint64_t ticks = 0;     ///< Time stamp; set by record(). FlightLog::nanosecondsAgo() explains it.
  uint64_t sequence = 0;  ///< Number of the call on its communicator.
  uint64_t count = 0;     ///< Elements, as the caller gave them.
  int32_t peer = -1;      ///< Root of a rooted collective, peer of send/recv; -1 for none.
  int32_t code = 0;       ///< Failed: a tutti::Code.
  uint16_t algorithm = 0; ///< Place in the list of algorithms.
  uint16_t channels = 0;
  FlightKind kind = FlightKind::Enqueued;
  Collective collective = Collective::AllReduce;
  DataType type = DataType::F32;
  ReduceOp op = ReduceOp::Sum;
};
static_assert(std::is_trivially_copyable_v<FlightEvent> && sizeof(FlightEvent) == 40);

/// "#12 AllReduce 1024 float sum ring finished", for reports.
std::string describe(const FlightEvent& event, std::string_view algorithm);

/// How an event lies in memory: one cache line.
struct alignas(64) FlightSlot {
  /// The writer makes it odd, stores the words and makes it even: 2 × number + 1, then + 2. 0: never written.
  uint64_t version;
  uint64_t words[sizeof(FlightEvent) / sizeof(uint64_t)];
};
static_assert(sizeof(FlightSlot) == 64);

/// What precedes the slots. Written once by format(), except `next`.
struct alignas(64) FlightHeader {
  static constexpr uint64_t kMagic = 0x314c464954545554;  ///< "TUTTIFL1", low byte first.
  uint64_t magic;
  uint32_t capacity;        ///< Slots; a power of two.
  int32_t rank;
  uint64_t communicator;    ///< Whatever tells communicators apart.
  uint64_t startTicks;      ///< Two clocks read together: the reader computes the rate of the ticks from them.
  int64_t startNanoseconds; ///< CLOCK_MONOTONIC.
  int64_t startRealtimeNs;  ///< CLOCK_REALTIME, to tell people the time of day.
  alignas(64) uint64_t next;  ///< Events ever recorded. Writer: release; reader: acquire.
};
static_assert(std::is_trivially_copyable_v<FlightHeader> && std::is_standard_layout_v<FlightHeader> && sizeof(FlightHeader) == 128);

/// Bytes that a ring of `events` takes; the number is rounded up to a power of two, at most 2^24. 0 events: 0 bytes.
size_t flightBytes(int64_t events);

/// The writer's view. Default constructed: switched off, record() does nothing.
class FlightRecorder {
 public:
  FlightRecorder() = default;

  /// Makes an empty ring in `memory`, of flightBytes() bytes, aligned to 64; empty memory gives a recorder that is off.
  static FlightRecorder format(std::span<std::byte> memory, Rank rank, uint64_t communicator);

  bool isOn() const { return header_ != nullptr; }

  void record(const FlightEvent& event) { record(event, event.kind); }

  /// Keeps `event` as one of `kind`, stamped with the time. Invariants 1 and 4.
  void record(const FlightEvent& event, FlightKind kind) {
    if (!header_) return;
    const uint64_t number = next_++;
    FlightSlot& slot = slots_[number & mask_];
    uint64_t words[std::size(FlightSlot{}.words)];
    __builtin_memcpy(words, &event, sizeof(words));
    // As whole words: bytes put into what is read as words right after are waited for.
    constexpr size_t kWordBytes = sizeof(uint64_t);
    static_assert(offsetof(FlightEvent, ticks) == 0 && std::endian::native == std::endian::little);
    constexpr size_t kShift = offsetof(FlightEvent, kind) % kWordBytes * 8;
    uint64_t& withKind = words[offsetof(FlightEvent, kind) / kWordBytes];
    withKind = (withKind & ~(uint64_t{0xff} << kShift)) | static_cast<uint64_t>(kind) << kShift;
    words[0] = readTicks();
    using Word = std::atomic_ref<uint64_t>;
    Word(slot.version).store(2 * number + 1, std::memory_order_relaxed);
    // release: a reader that sees one of these words (acquire) also sees the odd version, and drops what it read.
    [&]<size_t... i>(std::index_sequence<i...>) {  // not a loop: compilers leave it one
      (Word(slot.words[i]).store(words[i], std::memory_order_release), ...);
    }(std::make_index_sequence<std::size(FlightSlot{}.words)>());
    Word(slot.version).store(2 * number + 2, std::memory_order_release);  // pairs with the first acquire in FlightLog::read()
    Word(header_->next).store(number + 1, std::memory_order_release);     // pairs with the acquire of `next` there
  }

 private:
  FlightHeader* header_ = nullptr;
  FlightSlot* slots_ = nullptr;
  uint64_t mask_ = 0;
  uint64_t next_ = 0;  ///< Copy of header_->next, which has one writer.
};
static_assert(std::is_trivially_copyable_v<FlightRecorder>);

/// The reader's view.
class FlightLog {
 public:
  /// Refuses bytes that are no ring, or too few for the ring that they announce.
  static Result<FlightLog> attach(std::span<const std::byte> memory);

  struct Snapshot {
    std::vector<FlightEvent> events;  ///< Oldest first.
    uint64_t recorded = 0;            ///< Events ever recorded when the reading began.
    uint64_t dropped = 0;             ///< Of those, how many are not in `events`.
  };
  Snapshot read() const;

  Rank rank() const { return Rank(header_->rank); }
  uint64_t communicator() const { return header_->communicator; }

  /// Age of an event in nanoseconds; exact to about a microsecond once the ring is a second old.
  int64_t nanosecondsAgo(const FlightEvent& event) const;

 private:
  FlightLog(const FlightHeader* header, const FlightSlot* slots) : header_(header), slots_(slots) {}
  bool readSlot(uint64_t number, FlightEvent& event) const;

  const FlightHeader* header_;
  const FlightSlot* slots_;
};

/// A ring in private memory.
class FlightMemory {
 public:
  FlightMemory() = default;
  /// `events` as TUTTI_FLIGHT_RECORDER gives them: 0 or less is off.
  FlightMemory(int64_t events, Rank rank, uint64_t communicator);

  FlightRecorder& recorder() { return recorder_; }
  std::span<const std::byte> bytes() const { return {begin(), bytes_}; }

 private:
  static constexpr size_t kAlignment = 64;
  std::byte* begin() const {
    const auto address = reinterpret_cast<uintptr_t>(memory_.get());
    return memory_.get() + (kAlignment - address % kAlignment) % kAlignment;
  }
  // Aligned by hand: glibc 2.36 does not find the hole again that an aligned block of this size has left.
  std::unique_ptr<std::byte[]> memory_;
  size_t bytes_ = 0;
  FlightRecorder recorder_;
};

}  // namespace tutti::observe
