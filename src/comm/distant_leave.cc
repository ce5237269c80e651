// How ranks leave a communicator that spans hosts: what they sent is delivered, and its receivers know when all of it has come.
#include <algorithm>
#include <utility>

#include "comm/distant.h"
#include "comm/distant_wire.h"

namespace tutti::comm {

using transport::local::PipeView;

/// Whether the network has taken all that was sent; what ranks did not want that have departed since counts only if `toAll`.
bool Distant::isDelivered(bool toAll) const {
  const std::lock_guard lock(mutex_);
  return std::all_of(halves_.begin(), halves_.end(), [&](const auto& entry) {
    if (entry.second == nullptr || entry.second->sender == nullptr) return true;
    if (!toAll && entry.second->sender->final()) return true;
    if (!toAll && shared_.departed(Rank(entry.first[3]))) return true;
    const PipeView& pipe = entry.second->pipe.view();
    const uint64_t freed = pipe.freed->value.load(std::memory_order_acquire);  // pairs with the job's release
    return pipe.head(freed).filled.load(std::memory_order_acquire) != freed + 1;
  });
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

/// Waits until the network has all that was sent to ranks that may still want it.
void Distant::deliver() {
  constexpr std::chrono::minutes kPatience(1);
  constexpr std::chrono::milliseconds kLook(1);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  const auto isOver = [&] { return isOver_.load(std::memory_order_relaxed) || shared_.latch(Rank(0)).tripped(); };
  while (!isDelivered(false) && !isOver() && std::chrono::steady_clock::now() < end) (void)courier_->engine().progressOrWait(kLook);
  if (!isDelivered()) quiet();  // nobody wants it
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
