#include "comm/meeting.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <utility>

#include "comm/losses.h"
#include "comm/news.h"
#include "core/error_latch.h"
#include "core/format.h"

namespace tutti::comm {

using transport::local::Hub;

/// What the ranks share; zeroed memory is a meeting that nobody has come to. Under the parent's lock, but for `error`.
struct alignas(8) Meeting::Table {
  int32_t ranks;    ///< 0: nobody has come
  int32_t taken;    ///< ranks of this host that have their outcome
  int32_t members;  ///< of the key: so many numbers lie behind the seats
  bool isShrink;
  bool isComplete;  ///< the hubs are there
  ErrorLatch error;
};

struct alignas(8) Meeting::Seat {
  bool isTaken;
  Arrival arrival;
  Place place;
  uint64_t hub;  ///< where it lies in the arena
};

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a ^ (b * 0x9e3779b97f4a7c15ULL + 0x632be59bd9b4e019ULL);
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
  return x ^ x >> 31;
}

namespace {

/// Waits for the lock of who will look again, and of who says that it is over.
constexpr std::chrono::milliseconds kLook(10), kEnd(500);

Hub::Name nameOf(const ChildKey& key) {
  uint64_t halves[2];
  for (uint64_t h = 0; h < 2; ++h) {
    halves[h] = mix(mix(h, key.number), key.mayBeBroken ? 1 : 0);
    for (const int32_t member : key.members) halves[h] = mix(halves[h], static_cast<uint64_t>(member));
  }
  return {static_cast<int32_t>(halves[0]), static_cast<int32_t>(halves[0] >> 32), static_cast<int32_t>(halves[1]),
          static_cast<int32_t>(halves[1] >> 32)};
}

}  // namespace

Meeting::Seat& Meeting::seatOf(int32_t place) const { return reinterpret_cast<Seat*>(table_ + 1)[place]; }

Meeting::Meeting(std::shared_ptr<Hub> parent, const ChildKey& key, int32_t ranks, Rank place)
    : parent_(std::move(parent)), name_(nameOf(key)), ranks_(ranks), place_(place), members_(key.members), key_(key) {}

Result<bool> Meeting::openTable() {
  if (table_ != nullptr) return true;
  const auto places = static_cast<uint64_t>(ranks_);
  const auto memory = parent_->block(name_, Bytes(sizeof(Table) + places * (sizeof(Seat) + sizeof(int32_t))));
  if (!memory) return tl::unexpected(memory.error());
  holds_ = *memory != nullptr;
  table_ = reinterpret_cast<Table*>(*memory);
  return holds_;
}

Result<std::shared_ptr<Meeting>> Meeting::arrive(std::shared_ptr<Hub> parent, const ChildKey& key, int32_t ranks, Rank place,
                                                 const Arrival& arrival) {
  std::shared_ptr<Meeting> meeting(new Meeting(std::move(parent), key, ranks, place));
  meeting->arrival_ = arrival;
  if (auto seated = meeting->takeSeat(); !seated) return tl::unexpected(std::move(seated).error());
  return meeting;
}

Result<bool> Meeting::takeSeat() {
  if (!arrival_) return true;
  const Arrival arrival = *arrival_;
  if (auto opened = openTable(); !opened || !*opened) return opened;
  {
    const auto lock = parent_->lock(kLook);
    if (!lock) return false;
    if (Status status = seat(arrival); !status.ok()) return tl::unexpected(std::move(status));
  }
  arrival_.reset();
  tellOthers(arrival, Status());
  return true;
}

void Meeting::tellOthers(const Arrival& arrival, const Status& cause) const {
  if (parent_->remote() == nullptr) return;
  // The end is for every process: one that is not of a child cannot fail it for the others of its host.
  parent_->remote()->tell(encodeComing({key_, ranks_, place_, arrival, cause}), key_.members, !cause.ok());
}

/// Of the thread that all connections have, which does not wait for the lock. What it cannot do is done by a rank that looks for its
/// outcome.
void Meeting::hear(const std::shared_ptr<Hub>& parent, std::span<const std::byte> message) {
  {
    const std::lock_guard lock(parent->later().mutex);
    parent->later().messages.emplace_back(message.begin(), message.end());
  }
  heedPostponed(parent);
}

void Meeting::heedPostponed(const std::shared_ptr<Hub>& parent) {
  Hub::Later& later = parent->later();
  const std::unique_lock turn(later.turn, std::try_to_lock);
  if (!turn) return;  // somebody is at it
  for (std::unique_lock lock(later.mutex); !later.messages.empty(); later.messages.pop_front()) {
    const std::vector<std::byte>& next = later.messages.front();  // stays where it is: others are added behind it
    lock.unlock();
    if (!heed(parent, next)) return;
    lock.lock();
  }
}

/// False: to be done later.
bool Meeting::heed(const std::shared_ptr<Hub>& parent, std::span<const std::byte> message) {
  const auto coming = decodeComing(message, parent->ranks());
  if (!coming) return true;
  const auto place = static_cast<size_t>(coming->place.value);
  const auto& members = coming->key.members;
  if (parent->isOnHost(members.empty() ? coming->place : Rank(members[place]))) return true;  // ranks of this host speak for themselves
  Meeting meeting(parent, coming->key, coming->ranks, coming->place);
  if (!coming->ended.ok()) meeting.failChildren(coming->ranks, coming->ended);
  const auto opened = meeting.openTable();
  if (!opened) return parent->failAll(opened.error()), true;
  if (!*opened) return false;
  {
    const auto lock = parent->lock(kLook);
    if (!lock) return false;
    if (coming->ended.ok()) return (void)meeting.seat(coming->arrival), true;
    (void)meeting.table_->error.trip(coming->ended);
  }
  meeting.failChildren(coming->ranks, coming->ended);  // those that were attached meanwhile
  // Lists that differ: who says so has ended its own meeting, and will not come to the other one either.
  if (members.empty() || coming->ended.code() != Code::InvalidUsage) return true;
  for (const auto& other : open(parent)) {
    const auto there = std::ranges::find(other->members_, members[place]);
    if (there == other->members_.end() || other->has(Rank(static_cast<int32_t>(there - other->members_.begin())))) continue;
    other->end(coming->ended);
  }
  return true;
}

/// A rank elsewhere gave up before it knew that all had come: who has its communicator already waits for it in vain.
void Meeting::failChildren(int32_t ranks, const Status& cause) const {
  for (const auto& hub : parent_->arena()->hubs())
    for (int32_t group = 0; group < ranks; ++group)
      if (hub->id() == hubId(static_cast<uint64_t>(group))) hub->failAll(cause);
}

Meeting::~Meeting() {
  if (holds_) parent_->release(name_);
}

/// Under the lock.
Status Meeting::seat(const Arrival& arrival) {
  Table& table = *table_;
  if (table.ranks == 0) {
    table.isShrink = !members_.empty();
    auto* members = reinterpret_cast<int32_t*>(&seatOf(ranks_));
    std::copy(members_.begin(), members_.end(), members);
    table.members = static_cast<int32_t>(members_.size());
    table.ranks = ranks_;
  }
  Seat& seat = seatOf(place_.value);
  if (seat.isTaken)
    return error(Code::InvalidUsage, "rank {} has come already: two callers claim its place in the new communicator", place_.value);
  seat.arrival = arrival;
  seat.isTaken = true;
  completeIfAllThere();
  return {};
}

/// Ranks of this process that have a place in a group. Under the lock, once the meeting is complete.
int32_t Meeting::countHere(int32_t group) const {
  int32_t count = 0;
  for (int32_t p = 0; p < table_->ranks; ++p) {
    const Rank rank(members_.empty() ? p : members_[static_cast<size_t>(p)]);
    count += seatOf(p).place.group == group && parent_->isHere(rank) ? 1 : 0;
  }
  return count;
}

/// By their new ranks. Under the lock, once the meeting is complete.
std::shared_ptr<const std::vector<Arrival>> Meeting::membersOfGroup(int32_t group) const {
  auto members = std::make_shared<std::vector<Arrival>>();
  for (int32_t p = 0; p < table_->ranks; ++p) {
    const Seat& seat = seatOf(p);
    if (seat.place.group != group) continue;
    members->resize(static_cast<size_t>(seat.place.ranks));
    (*members)[static_cast<size_t>(seat.place.rank.value)] = seat.arrival;
  }
  return members;
}

int32_t Meeting::countMissing() const {
  int32_t missing = 0;
  for (int32_t p = 0; p < table_->ranks; ++p) missing += seatOf(p).isTaken ? 0 : 1;
  return missing;
}

/// Under the lock. Done by the last who comes, or, if that one died just then, by whoever looks next.
void Meeting::completeIfAllThere() {
  Table& table = *table_;
  if (table.isComplete || table.error.tripped() || countMissing() > 0) return;
  Status status;
  try {
    status = makeHubs();
  } catch (const std::bad_alloc&) {  // those who wait get to know, too
    status = Status(Code::SystemError, "out of memory");
  }
  if (status.ok()) {
    table.isComplete = true;
  } else {
    (void)table.error.trip(error(status.code(), "no communicator of {} ranks: {}", table.ranks, status.text()));
  }
}

/// Of the communicator of a colour: the same on all hosts.
uint64_t Meeting::hubId(uint64_t group) const {
  uint64_t id = mix(parent_->id(), group);
  for (const int32_t part : name_) id = mix(id, static_cast<uint32_t>(part));
  return id;
}

/// Whether all ranks of this host have their outcome: those of other hosts have a table of their own. Under the lock.
bool Meeting::isTakenByAllHere() const {
  int32_t here = 0;
  for (int32_t r = 0; r < parent_->ranks(); ++r) here += parent_->isOnHost(Rank(r)) ? 1 : 0;
  return table_->taken == here;
}

/// Everybody is there: ranks of one colour, in the order of key and rank, become a communicator. Under the lock.
Status Meeting::makeHubs() {
  std::vector<Arrival> arrivals;
  for (int32_t p = 0; p < table_->ranks; ++p) arrivals.push_back(seatOf(p).arrival);
  const Grouping grouping = formGroups(arrivals);
  std::vector<uint64_t> hubs;
  for (const auto& members : grouping.members) {
    std::vector<int32_t> processOf;
    for (const int32_t p : members)
      processOf.push_back(parent_->processOf(members_.empty() ? Rank(p) : Rank(members_[static_cast<size_t>(p)])));
    const uint64_t id = hubId(hubs.size());
    const bool isHere = std::any_of(processOf.begin(), processOf.end(), [this](int32_t p) { return parent_->arena()->isOnHost(p); });
    const auto hub = isHere ? Hub::format(*parent_->arena(), id, processOf) : Result<uint64_t>(0);
    if (!hub) return hub.error();
    hubs.push_back(*hub);
  }
  for (int32_t p = 0; p < table_->ranks; ++p) {
    seatOf(p).place = grouping.places[static_cast<size_t>(p)];
    if (seatOf(p).place.group >= 0) seatOf(p).hub = hubs[static_cast<size_t>(seatOf(p).place.group)];
  }
  return {};
}

std::optional<Result<Outcome>> Meeting::poll() {
  if (outcome_) return outcome_;
  if (arrival_) {
    auto seated = takeSeat();
    if (seated && !*seated) return std::nullopt;  // whoever waits looks again, and gives up when it is time
    if (!seated) {
      arrival_.reset();
      table_ = nullptr;  // it has no place there
      return outcome_ = tl::unexpected(std::move(seated).error());
    }
  }
  if (reached_) return leaveTable();
  heedPostponed(parent_);
  auto lock = parent_->lock(kLook);
  if (!lock) return std::nullopt;
  completeIfAllThere();
  const Seat seat = seatOf(place_.value);
  const bool hasChild = table_->isComplete && seat.place.group >= 0 && !std::exchange(hasCome_, true);
  const int32_t ranksHere = hasChild ? countHere(seat.place.group) : 0;
  const auto members = hasChild ? membersOfGroup(seat.place.group) : nullptr;
  if (table_->error.tripped()) {
    Status cause = table_->error.status();
    lock.unlock();
    if (hasChild) parent_->keepChild(seat.hub, ranksHere, nullptr);
    return tl::unexpected(std::move(cause));
  }
  if (!table_->isComplete) return std::nullopt;
  lock.unlock();
  Outcome outcome{nullptr, seat.place, members};
  Status trouble;
  if (seat.place.group >= 0) {
    auto hub = Hub::attach(parent_->arena(), seat.hub, seat.place.ranks);
    if (hub) {
      outcome.hub = std::move(*hub);
      parent_->keepChild(seat.hub, ranksHere, outcome.hub);
      if (outcome.hub->spansHosts()) parent_->remote()->adopt(outcome.hub);
      failIfLost(*outcome.hub);
    } else {
      trouble = std::move(hub).error();
      parent_->keepChild(seat.hub, ranksHere, nullptr);
    }
  }
  reached_ = trouble.ok() ? Result<Outcome>(std::move(outcome)) : tl::unexpected(std::move(trouble));
  return leaveTable();
}

/// This rank has its outcome; the last of this host clears up. Nothing while somebody has the lock.
std::optional<Result<Outcome>> Meeting::leaveTable() {
  auto lock = parent_->lock(kLook);
  if (!lock) return std::nullopt;
  const Status since = table_->error.status();  // what has failed the meeting meanwhile: failChildren() may not have seen the hub yet
  ++table_->taken;
  const bool isLast = !table_->isShrink && isTakenByAllHere();  // those of shrinks are looked at by others: open()
  table_ = nullptr;
  lock.unlock();
  if (isLast) parent_->forget(name_);
  if (reached_) outcome_ = std::move(*reached_);
  reached_.reset();
  if (!since.ok() && outcome_ && *outcome_ && (*outcome_)->hub != nullptr) (*outcome_)->hub->failAll(since);
  return outcome_;
}

void Meeting::end(const Status& cause) {
  if (arrival_) (void)openTable();  // to leave word, though it has no seat
  if (arrival_ && table_ == nullptr) return tellOthers({}, cause);
  if (table_ != nullptr && !reached_) {
    auto lock = parent_->lock(kEnd);
    if (!lock || !table_->isComplete) {
      const bool isNews = table_->error.trip(cause);
      lock.unlock();
      if (isNews && place_.value >= 0) tellOthers({}, cause);
      return;
    }
    if (place_.value < 0) return;
  }
  const auto outcome = poll();  // all are there: take the place, and leave it
  const auto& known = outcome ? outcome : reached_;
  if (known && *known && (*known)->hub != nullptr) (*known)->hub->failAll(cause);
}

bool Meeting::has(Rank place) const {
  const auto lock = parent_->lock(kLook);
  return !lock || table_ == nullptr || seatOf(place.value).isTaken;
}

bool Meeting::isWaiting() const {
  const auto lock = parent_->lock(kLook);
  return lock && table_ != nullptr && !table_->isComplete && !table_->error.tripped();
}

/// With who was stopped while it had a lock that those may wait for.
std::string Meeting::describeMissing(std::span<const int32_t> names) const {
  const std::string missing = missingRanks(names);
  const std::string stopped = parent_->describeStopped();
  return stopped.empty() ? missing : format("{} ({})", missing, stopped);
}

std::string Meeting::missingRanks(std::span<const int32_t> names) const {
  constexpr int32_t kMost = 16;  // names; the rest is counted
  const auto lock = parent_->lock(kLook);
  if (!lock) return "ranks that nobody can name";
  if (table_ == nullptr) return arrival_ ? "ranks that nobody can name yet" : "no ranks";
  const int32_t all = countMissing();
  std::string text = all == 1 ? "rank" : "ranks";
  int32_t named = 0;
  for (int32_t p = 0; p < table_->ranks && named < std::min(all, kMost); ++p) {
    if (seatOf(p).isTaken) continue;
    text += format("{} {}", named++ > 0 ? "," : "", names.empty() ? p : names[static_cast<size_t>(p)]);
  }
  if (all > named) text += format(" and {} more", all - named);
  return text + format(" of {}", table_->ranks);
}

std::vector<std::shared_ptr<Meeting>> Meeting::open(const std::shared_ptr<Hub>& parent) {
  std::vector<std::shared_ptr<Meeting>> found;
  const auto names = parent->blocks();
  for (size_t i = 0; names && i < names->size(); ++i) {
    std::shared_ptr<Meeting> meeting(new Meeting(parent, (*names)[i]));
    const auto memory = parent->existing((*names)[i]);
    if (memory == nullptr) continue;
    meeting->holds_ = true;
    meeting->table_ = reinterpret_cast<Table*>(memory);
    const auto lock = parent->lock(kLook);
    if (!lock || !meeting->table_->isShrink || meeting->table_->isComplete || meeting->table_->error.tripped()) continue;
    const auto* members = reinterpret_cast<const int32_t*>(&meeting->seatOf(meeting->table_->ranks));
    meeting->members_.assign(members, members + meeting->table_->members);
    found.push_back(std::move(meeting));
  }
  return found;
}

}  // namespace tutti::comm
