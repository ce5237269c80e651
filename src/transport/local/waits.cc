#include "transport/local/waits.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "transport/local/waits_wire.h"

namespace tutti::transport::local {

/// Where a rank's wait lies. Under the lock; `version` is written last.
struct Waits::Place {
  uint64_t version;  ///< changes with every publish and withdraw
  uint64_t waits;
  uint64_t episode;
  uint64_t inspections;
  int64_t confirmedNs;
  uint64_t bytes;

  char* data() { return reinterpret_cast<char*>(this + 1); }
};

struct Waits::VerdictPlace {
  uint64_t version;  ///< 0: there is none
  uint64_t bytes;

  char* data() { return reinterpret_cast<char*>(this + 1); }
};

namespace {

constexpr uint64_t kPage = 4096;

// Pages that nothing is written to take no memory.
uint64_t strideFor(int32_t ranks) {
  const uint64_t wanted = 16 * kPage + 64 * static_cast<uint64_t>(ranks);
  return (std::min<uint64_t>(wanted, 256 * kPage) + kPage - 1) / kPage * kPage;
}
uint64_t verdictBytesFor(int32_t ranks) { return 16 * kPage + std::min<uint64_t>(kPage * static_cast<uint64_t>(ranks), 2048 * kPage); }

/// Of a verdict too long for its place: the reports of the ranks go, but for what they count.
Verdict shorten(Verdict verdict) {
  for (RankReport& report : verdict.ranks) report.wait.chains.clear();
  return verdict;
}

}  // namespace

uint64_t Waits::bytesFor(int32_t ranks) { return verdictBytesFor(ranks) + static_cast<uint64_t>(ranks) * strideFor(ranks); }

Waits::Waits(int32_t ranks, SharedMutex& mutex, Patience& patience, std::byte* memory)
    : mutex_(mutex), patience_(patience), memory_(memory), stride_(strideFor(ranks)), seen_(static_cast<size_t>(ranks)) {
  state_.ranks.resize(static_cast<size_t>(ranks));
}

Waits::VerdictPlace& Waits::verdictPlace() const { return *reinterpret_cast<VerdictPlace*>(memory_); }
Waits::Place& Waits::place(size_t rank) const {
  return *reinterpret_cast<Place*>(memory_ + verdictBytesFor(static_cast<int32_t>(seen_.size())) + rank * stride_);
}

bool Waits::publish(Rank rank, const RankWait& wait) {
  const std::string bytes = encodeWait(wait);
  const bool fits = bytes.size() <= stride_ - sizeof(Place);
  const SharedLock lock(mutex_, patience_, Patience::kBrief);
  if (!lock) return false;
  Place& at = place(static_cast<size_t>(rank.value));
  at.bytes = fits ? bytes.size() : 0;
  std::memcpy(at.data(), bytes.data(), at.bytes);
  at.waits = fits ? 1 : 0;
  ++at.episode;
  ++at.version;
  return true;
}

void Waits::withdraw(Rank rank) {
  const SharedLock lock(mutex_, patience_, Patience::kBrief);
  if (!lock) return;
  Place& at = place(static_cast<size_t>(rank.value));
  at.waits = 0;
  ++at.version;
}

void Waits::confirm(Rank rank) {
  const SharedLock lock(mutex_, patience_, Patience::kBrief);
  if (!lock) return;
  Place& at = place(static_cast<size_t>(rank.value));
  ++at.inspections;
  at.confirmedNs = std::chrono::steady_clock::now().time_since_epoch().count();
}

/// Reads what has changed since the last time.
void Waits::refresh() {
  for (size_t r = 0; r < seen_.size(); ++r) {
    Place& at = place(r);
    Entry& entry = state_.ranks[r];
    entry.inspections = at.inspections;
    entry.confirmedNs = at.confirmedNs;
    if (at.version == seen_[r]) continue;
    seen_[r] = at.version;
    entry.waits = at.waits != 0;
    entry.episode = at.episode;
    if (!entry.waits) continue;
    auto wait = decodeWait({at.data(), std::min<uint64_t>(at.bytes, stride_ - sizeof(Place))});
    entry.waits = wait.has_value();  // an unreadable one is none: its rank may do anything
    if (wait) entry.wait = std::move(*wait);
  }
  VerdictPlace& shared = verdictPlace();
  if (shared.version == seenVerdict_) return;
  seenVerdict_ = shared.version;
  const uint64_t room = verdictBytesFor(static_cast<int32_t>(seen_.size())) - sizeof(VerdictPlace);
  if (auto verdict = decodeVerdict({shared.data(), std::min(shared.bytes, room)})) state_.verdict = std::move(*verdict);
}

void Waits::shareVerdict() {
  if (!state_.verdict) return;
  const uint64_t room = verdictBytesFor(static_cast<int32_t>(seen_.size())) - sizeof(VerdictPlace);
  std::string bytes = encodeVerdict(*state_.verdict);
  if (bytes.size() > room) bytes = encodeVerdict(shorten(*state_.verdict));
  if (bytes.size() > room) return;  // this process keeps it for itself
  VerdictPlace& shared = verdictPlace();
  std::memcpy(shared.data(), bytes.data(), bytes.size());
  shared.bytes = bytes.size();
  seenVerdict_ = ++shared.version;
}

}  // namespace tutti::transport::local
