#include "comm/spread.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

namespace tutti::comm {

/// What a piece begins with; its circle and its body follow.
struct Spread::Head {
  uint64_t topic;
  uint64_t number;  ///< from 1
  int32_t origin;
  uint32_t circleBytes;
  uint32_t bodyBytes;
  uint32_t unused;
};

namespace {

/// A batch that has grown so long does not wait.
constexpr size_t kMostWaitingBytes = size_t{1} << 20;

/// Many hosts have much to say at once, and a message costs the same whatever is in it; a death must still be known everywhere within a
/// second, so that log2(hosts) of them stay far below.
std::chrono::milliseconds paceFor(size_t hosts) {
  constexpr size_t kHostsPerMs = 64;
  constexpr size_t kMostMs = 20;
  return std::chrono::milliseconds(std::clamp<size_t>(hosts / kHostsPerMs, 1, kMostMs));
}

template <class T>
void append(std::vector<std::byte>& to, const T& range) {
  to.insert(to.end(), range.begin(), range.end());
}

}  // namespace

bool Spread::Heard::add(uint64_t number) {
  constexpr uint64_t kBits = 64;
  if (number > latest) {
    const uint64_t step = number - latest;
    before = step >= kBits ? 0 : before << step;
    if (latest > 0 && step <= kBits) before |= uint64_t{1} << (step - 1);
    latest = number;
    return true;
  }
  const uint64_t age = latest - number;
  if (age == 0 || age > kBits) return false;
  const uint64_t bit = uint64_t{1} << (age - 1);
  return (std::exchange(before, before | bit) & bit) == 0;
}

Spread::Spread(const bootstrap::Roster& roster, std::vector<std::byte> prefix, Clock& clock)
    : roster_(roster), prefix_(std::move(prefix)), clock_(clock), everybody_(Circle::ofAll(roster)), pace_(paceFor(roster.hosts.size())) {}

void Spread::say(uint64_t topic, const Circle& circle, std::span<const std::byte> body, Way way) {
  const std::vector<std::byte> circleBytes = circle.encode(roster_);
  const std::lock_guard lock(mutex_);
  const Head head{topic, ++topics_[topic].said, roster_.ownProcess, static_cast<uint32_t>(circleBytes.size()),
                  static_cast<uint32_t>(body.size()), 0};
  std::vector<std::byte> piece;
  append(piece, std::as_bytes(std::span(&head, 1)));
  append(piece, circleBytes);
  append(piece, body);
  if (way == Way::Direct && roster_.processes.size() <= kMostDirect) {
    for (int32_t place = 0; place < circle.hosts(); ++place)
      for (const int32_t process : circle.processesAt(place))
        if (place != circle.place() && roster_.mesh->isReachable(process)) add(process, piece);
    return sendOrWait();
  }
  std::vector<int32_t> places = circle.neighboursOf(circle.place());
  if (way == Way::Last) std::ranges::copy(circle.neighboursBefore(circle.place()), std::back_inserter(places));
  std::ranges::sort(places);
  places.erase(std::ranges::unique(places).begin(), places.end());
  handOn(circle, places, piece);
  sendOrWait();
}

void Spread::hear(int32_t from, std::span<const std::byte> batch, Audience& audience) {
  const bool isOfHost = roster_.process(from).host == roster_.ownHost;
  const auto processes = static_cast<int32_t>(roster_.processes.size());
  Head head{};
  while (batch.size() >= sizeof head) {
    std::memcpy(&head, batch.data(), sizeof head);
    const uint64_t bytes = sizeof head + uint64_t{head.circleBytes} + head.bodyBytes;
    if (bytes > batch.size() || head.origin < 0 || head.origin >= processes || head.number == 0) return;
    const auto whole = batch.first(bytes);
    batch = batch.subspan(bytes);
    const auto circleBytes = whole.subspan(sizeof head, head.circleBytes);
    const auto decoded = circleBytes.empty() ? std::nullopt : Circle::decode(roster_, circleBytes);
    const bool isOwn = roster_.process(head.origin).host == roster_.ownHost;  // it has come round
    if (isOwn || (!circleBytes.empty() && !decoded)) continue;
    const Circle& circle = decoded ? *decoded : everybody_;
    const Piece piece{head.topic, head.origin, whole.subspan(sizeof head + head.circleBytes)};
    if (!isNew(head.topic, head.origin, head.number)) continue;
    if (!isOfHost && audience.isWorthPassingOn(piece)) {
      const std::lock_guard lock(mutex_);
      handOn(circle, circle.neighboursOf(circle.place()), whole);
    }
    if (!audience.take(piece)) {
      const std::lock_guard lock(mutex_);
      handToNextHere(circle, whole);
    }
  }
  const std::lock_guard lock(mutex_);
  sendOrWait();
}

bool Spread::isNew(uint64_t topic, int32_t origin, uint64_t number) {
  const std::lock_guard lock(mutex_);
  return forgotten_.count(topic) == 0 && topics_[topic].heard[origin].add(number);
}

/// The first process there that can be reached; -1: none.
int32_t Spread::reachableAt(const Circle& circle, int32_t place) const {
  for (const int32_t process : circle.processesAt(place))
    if (roster_.mesh->isReachable(process)) return process;
  return -1;
}

/// To each of the places, or, where nobody is left, to the next where somebody is. Under the lock.
void Spread::handOn(const Circle& circle, std::span<const int32_t> places, std::span<const std::byte> piece) {
  std::set<int32_t> tried = {circle.place()};
  for (int32_t place : places) {
    for (int32_t i = 0; i < circle.hosts(); ++i, place = (place + 1) % circle.hosts()) {
      if (!tried.insert(place).second) continue;
      const int32_t process = reachableAt(circle, place);
      if (process < 0) continue;
      add(process, piece);
      break;
    }
  }
}

/// Those behind this one, so that nothing goes round and round. Under the lock.
void Spread::handToNextHere(const Circle& circle, std::span<const std::byte> piece) {
  for (const int32_t process : circle.processesAt(circle.place()))
    if (process > roster_.ownProcess && roster_.mesh->isReachable(process)) return add(process, piece);
}

void Spread::add(int32_t process, std::span<const std::byte> piece) {
  std::vector<std::byte>& batch = waiting_[process];
  if (batch.empty()) batch = prefix_;
  append(batch, piece);
  if (batch.size() >= kMostWaitingBytes) (void)roster_.mesh->tell(process, std::exchange(batch, {}));
}

/// Under the lock.
void Spread::sendOrWait() {
  if (waiting_.empty() || isAwaited_) return;
  if (clock_.now() - sent_ >= pace_) return sendAll();
  isAwaited_ = true;
  roster_.mesh->after(pace_, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    const std::lock_guard lock(self->mutex_);
    self->isAwaited_ = false;
    self->sendAll();
  });
}

/// Under the lock.
void Spread::sendAll() {
  sent_ = clock_.now();
  for (const auto& [process, batch] : std::exchange(waiting_, {}))
    if (!batch.empty()) (void)roster_.mesh->tell(process, batch);
}

void Spread::flush() {
  const std::lock_guard lock(mutex_);
  sendAll();
}

void Spread::end(uint64_t topic) {
  const std::lock_guard lock(mutex_);
  over_.push_back(topic);
  if (over_.size() <= kMostOver) return;
  topics_.erase(over_.front());
  forgotten_.insert(over_.front());
  over_.pop_front();
}

}  // namespace tutti::comm
