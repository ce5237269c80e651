// How ranks leave a communicator that spans hosts: what they sent is delivered, and its receivers know when all of it has come.
#include <algorithm>
#include <utility>

#include "comm/distant.h"
#include "comm/distant_wire.h"
#include "observe/log.h"

namespace tutti::comm {

using transport::local::PipeView;

/// Whether the network has taken what was sent over this pipe; what ranks did not want that have departed since counts only if `toAll`.
bool Distant::isTaken(const Key& key, const Half* half, bool toAll) const {
  if (half == nullptr || half->sender == nullptr) return true;
  if (!toAll && (half->sender->final() || shared_.departed(Rank(key[3])))) return true;
  const PipeView& pipe = half->pipe.view();
  const uint64_t freed = pipe.freed->value.load(std::memory_order_acquire);  // pairs with the job's release
  return pipe.head(freed).filled.load(std::memory_order_acquire) != freed + 1;
}

bool Distant::isDelivered(bool toAll) const {
  const std::lock_guard lock(mutex_);
  return std::all_of(halves_.begin(), halves_.end(), [&](const auto& entry) { return isTaken(entry.first, entry.second.get(), toAll); });
}

void Distant::tellCount(const Key& key, uint64_t messages) const {
  (void)courier_->send(shared_.processOf(Rank(key[3])), id_, News::PipeCount, bytesOfValue(PipeCount{key, messages}));
}

/// To the receivers of a rank that sends no more; those that ask for a pipe later hear it then.
void Distant::tellCounts(Rank rank) {
  const std::lock_guard lock(mutex_);
  departedHere_.insert(rank.value);
  for (const auto& [key, half] : halves_)
    if (key[2] == rank.value && half != nullptr && half->sender != nullptr) tellCount(key, countMessages(half->pipe.view()));
  for (const auto& [key, handle] : handles_)
    if (key[2] == rank.value) tellCount(key, 0);
}

void Distant::hearPipeCount(std::span<const std::byte> body) {
  PipeCount count{};
  if (!readValue(body, count) || !isBetween(count.key[3], count.key[2])) return;
  const std::lock_guard lock(mutex_);
  counts_[count.key] = count.messages;
}

std::vector<std::byte> Distant::answerForNobody(std::span<const std::byte> pipeEnd) {
  PipeEnd end{};
  if (!readValue(pipeEnd, end)) return {};
  const PipeCount none{end.key, 0};
  const auto bytes = bytesOfValue(none);
  return {bytes.begin(), bytes.end()};
}

bool Distant::owes(Rank rank) {
  constexpr std::chrono::seconds kForAnAnswer(2);  // the process may have ended before it was asked
  const std::lock_guard lock(mutex_);
  for (const auto& [key, half] : halves_) {
    if (key[2] != rank.value || half == nullptr || half->sender != nullptr) continue;
    if (const auto count = counts_.find(key); count != counts_.end()) {
      if (countMessages(half->pipe.view()) < count->second) return true;
      continue;
    }
    const auto now = std::chrono::steady_clock::now();
    if (now < owedUntil_.try_emplace(key, now + kForAnAnswer).first->second) return true;
  }
  return false;
}

/// While a connection is broken the reason is, whoever waits for what went over it.
bool Distant::isSending(Rank rank) {
  if (breakOf()) return true;
  std::vector<const progress::SendJob*> senders;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, half] : halves_)
      if (key[2] == rank.value && half != nullptr && half->sender != nullptr) senders.push_back(half->sender);
  }
  return jobs_.isUnderWay(senders);
}

/// How many messages the network has taken, of all pipes.
uint64_t Distant::countTaken() const {
  const std::lock_guard lock(mutex_);
  uint64_t taken = 0;
  for (const auto& [key, half] : halves_)
    if (half != nullptr && half->sender != nullptr) taken += half->pipe.view().freed->value.load(std::memory_order_relaxed);
  return taken;
}

/// Nothing more is sent: the receivers of what is left hear how many messages there are now. "ranks 2, 5".
std::string Distant::giveUpRest() {
  std::set<int32_t> ranks;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, half] : halves_) {
    if (isTaken(key, half.get(), false)) continue;
    ranks.insert(key[3]);
    tellCount(key, half->pipe.view().freed->value.load(std::memory_order_relaxed));
  }
  return bootstrap::describeRanks({ranks.begin(), ranks.end()});
}

/// Waits until the network has all that was sent to ranks that may still want it: for as long as it takes more of it, or may pause.
void Distant::deliver() {
  constexpr std::chrono::nanoseconds kPatience = std::chrono::minutes(1);
  constexpr std::chrono::milliseconds kLook(1);
  const auto isOver = [&] { return isOver_.load(std::memory_order_relaxed) || shared_.latch(Rank(0)).tripped(); };
  auto since = std::chrono::steady_clock::now();
  uint64_t taken = countTaken();
  while (!isDelivered(false) && !isOver()) {
    const auto paused = std::chrono::steady_clock::now() - since;
    const std::chrono::nanoseconds longest = shared_.longestWait();
    if (const uint64_t more = countTaken(); more != taken) {
      taken = more;
      since += paused;
    } else if (paused >= (longest.count() > 0 ? longest : kPatience)) {
      observe::warn("a communicator ends before all that was sent to {} has been taken: nothing was for {} ms{}", giveUpRest(),
                    std::chrono::duration_cast<std::chrono::milliseconds>(paused).count(),
                    longest.count() > 0 ? ", longer than TUTTI_TIMEOUT_MS or tuttiCommSetTimeout allows" : "");
      break;
    }
    (void)courier_->engine().progressOrWait(kLook);
  }
  if (!isDelivered()) quiet();  // nobody wants it, or can have it
}

/// The last rank of this process has departed. Afterwards no handler holds the hub, so that whoever lets go of it ends it, and not the
/// bootstrap's thread, behind the back of a process that then exits.
void Distant::takeLeave() {
  deliver();
  courier_->dismiss(id_);
  const std::lock_guard lock(hearing_);
  isDeaf_ = true;
}

}  // namespace tutti::comm
