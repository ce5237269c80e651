#include "observe/flight_recorder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <ctime>

namespace tutti::observe {
namespace {

constexpr int64_t kMaxEvents = int64_t{1} << 24;

int64_t readClock(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

/// Atomic loads of words that a writer, maybe in another process, stores atomically. The bytes may be mapped read-only:
/// loads of that size never write.
uint64_t loadWord(const uint64_t& word, std::memory_order order) {
  return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(word)).load(order);
}

}  // namespace

std::string_view name(FlightKind kind) {
  constexpr std::array<std::string_view, 4> kNames = {"enqueued", "started", "finished", "failed"};
  const auto index = static_cast<size_t>(kind);
  return index < kNames.size() ? kNames[index] : "unknown";
}

std::string describe(const FlightEvent& event, std::string_view algorithm) {
  std::string text = format("#{} {} {} {}", event.sequence, name(event.collective), event.count, name(event.type));
  const bool combines = reduces(event.collective);
  if (combines) text += format(" {}", name(event.op));
  if (event.peer >= 0) text += format(" {} {}", event.collective == Collective::SendRecv ? "peer" : "root", event.peer);
  if (!algorithm.empty()) text += format(" {}", algorithm);
  text += format(" {}", name(event.kind));
  if (event.kind == FlightKind::Failed) text += format(": {}", codeName(static_cast<Code>(event.code)));
  return text;
}

size_t flightBytes(int64_t events) {
  if (events <= 0) return 0;
  return sizeof(FlightHeader) + std::bit_ceil(static_cast<size_t>(std::min(events, kMaxEvents))) * sizeof(FlightSlot);
}

FlightRecorder FlightRecorder::format(std::span<std::byte> memory, Rank rank, uint64_t communicator) {
  FlightRecorder recorder;
  if (memory.size() < sizeof(FlightHeader) + sizeof(FlightSlot)) return recorder;
  const size_t capacity = std::bit_floor((memory.size() - sizeof(FlightHeader)) / sizeof(FlightSlot));
  recorder.slots_ = reinterpret_cast<FlightSlot*>(memory.data() + sizeof(FlightHeader));
  std::uninitialized_value_construct_n(recorder.slots_, capacity);
  FlightHeader header{};
  header.capacity = static_cast<uint32_t>(capacity);
  header.rank = rank.value;
  header.communicator = communicator;
  header.startRealtimeNs = readClock(CLOCK_REALTIME);
  header.startNanoseconds = readClock(CLOCK_MONOTONIC);
  header.startTicks = readTicks();
  recorder.header_ = ::new (static_cast<void*>(memory.data())) FlightHeader(header);
  recorder.mask_ = capacity - 1;
  // Last: a reader of shared memory that sees the magic (acquire in attach()) sees a whole, empty ring.
  std::atomic_ref<uint64_t>(recorder.header_->magic).store(FlightHeader::kMagic, std::memory_order_release);
  return recorder;
}

Result<FlightLog> FlightLog::attach(std::span<const std::byte> memory) {
  if (memory.size() < sizeof(FlightHeader) || reinterpret_cast<uintptr_t>(memory.data()) % alignof(FlightHeader) != 0) {
    return fail(Code::InvalidArgument, "flight recorder: {} bytes at {} are no ring", memory.size(),
                static_cast<const void*>(memory.data()));
  }
  const auto* header = reinterpret_cast<const FlightHeader*>(memory.data());
  const uint64_t magic = loadWord(header->magic, std::memory_order_acquire);  // pairs with the release in format()
  if (magic != FlightHeader::kMagic) return fail(Code::InvalidArgument, "flight recorder: wrong magic {:#x}", magic);
  const size_t room = (memory.size() - sizeof(FlightHeader)) / sizeof(FlightSlot);
  if (!std::has_single_bit(header->capacity) || header->capacity > room) {
    return fail(Code::InvalidArgument, "flight recorder: {} slots announced, room for {}", header->capacity, room);
  }
  return FlightLog(header, reinterpret_cast<const FlightSlot*>(memory.data() + sizeof(FlightHeader)));
}

bool FlightLog::readSlot(uint64_t number, FlightEvent& event) const {
  const FlightSlot& slot = slots_[number & (header_->capacity - 1)];
  const uint64_t complete = 2 * number + 2;
  // acquire: pairs with the even store in record(); then the words are at least as new as this event.
  if (loadWord(slot.version, std::memory_order_acquire) != complete) return false;
  uint64_t words[std::size(FlightSlot{}.words)];
  // acquire: a newer word brings the newer, odd version with it, which the check behind the loop then sees.
  for (size_t i = 0; i < std::size(words); ++i) words[i] = loadWord(slot.words[i], std::memory_order_acquire);
  if (loadWord(slot.version, std::memory_order_relaxed) != complete) return false;
  __builtin_memcpy(&event, words, sizeof(words));
  return true;
}

FlightLog::Snapshot FlightLog::read() const {
  Snapshot snapshot;
  snapshot.recorded = loadWord(header_->next, std::memory_order_acquire);  // pairs with the release in record()
  const uint64_t kept = std::min<uint64_t>(snapshot.recorded, header_->capacity);
  snapshot.events.reserve(kept);
  for (uint64_t number = snapshot.recorded - kept; number < snapshot.recorded; ++number) {
    FlightEvent event;
    if (readSlot(number, event)) snapshot.events.push_back(event);
  }
  snapshot.dropped = snapshot.recorded - snapshot.events.size();
  return snapshot;
}

int64_t FlightLog::nanosecondsAgo(const FlightEvent& event) const {
  const uint64_t ticks = readTicks();
  const int64_t elapsed = readClock(CLOCK_MONOTONIC) - header_->startNanoseconds;
  const auto elapsedTicks = static_cast<double>(ticks - header_->startTicks);
  if (elapsedTicks <= 0 || elapsed <= 0) return 0;
  return static_cast<int64_t>(static_cast<double>(ticks - event.ticks) * (static_cast<double>(elapsed) / elapsedTicks));
}

FlightMemory::FlightMemory(int64_t events, Rank rank, uint64_t communicator) : bytes_(flightBytes(events)) {
  if (bytes_ == 0) return;
  memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes_ + kAlignment);
  recorder_ = FlightRecorder::format({begin(), bytes_}, rank, communicator);
}

}  // namespace tutti::observe
