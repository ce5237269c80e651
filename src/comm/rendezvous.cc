#include "comm/rendezvous.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <numeric>
#include <utility>

#include "comm/process.h"
#include "core/format.h"

namespace tutti::comm {
namespace {

/// What an id holds: enough to tell ours from noise, and this process from others.
struct IdContent {
  uint64_t magic;
  uint64_t hash;      // random; shown in logs as commId
  uint64_t process;   // random for each process, and its number: a forked child is another process
  uint64_t processId;
};
static_assert(sizeof(IdContent) <= sizeof(UniqueIdBytes));

constexpr uint64_t kMagic = 0x3164696974747574;  // "tuttiid1"

Result<uint64_t> randomNumber() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number))
    return fail(Code::SystemError, "the system gave no random numbers: {}", std::strerror(errno));
  return number;
}

IdContent contentOf(const UniqueIdBytes& id) {
  IdContent content;
  std::memcpy(&content, id.data(), sizeof content);
  return content;
}

}  // namespace

std::optional<Result<Meeting::Outcome>> Meeting::poll(Rank rank) const {
  const std::lock_guard lock(mutex_);
  if (!error_.ok()) return tl::unexpected(error_);
  if (outcomes_.empty()) return std::nullopt;
  return outcomes_[static_cast<size_t>(rank.value)];
}

std::string Meeting::describeMissing(std::span<const int32_t> names) const {
  constexpr int32_t kMost = 16;  // names; the rest is counted
  const std::lock_guard lock(mutex_);
  const int32_t all = ranks_ - static_cast<int32_t>(arrivals_.size());
  std::string text = all == 1 ? "rank" : "ranks";
  int32_t named = 0;
  for (int32_t r = 0; r < ranks_ && named < std::min(all, kMost); ++r) {
    if (arrivals_.count(r) != 0) continue;
    text += format("{} {}", named++ > 0 ? "," : "", names.empty() ? r : names[static_cast<size_t>(r)]);
  }
  if (all > named) text += format(" and {} more", all - named);
  return text + format(" of {}", ranks_);
}

bool Meeting::has(Rank rank) const {
  const std::lock_guard lock(mutex_);
  return arrivals_.count(rank.value) != 0;
}

bool Meeting::isOver() const {
  const std::lock_guard lock(mutex_);
  return !outcomes_.empty() || !error_.ok();
}

bool Meeting::isComplete() const {
  const std::lock_guard lock(mutex_);
  return arrivals_.size() == static_cast<size_t>(ranks_);
}

Status Meeting::join(int32_t ranks, Rank rank, const Arrival& arrival) {
  const std::lock_guard lock(mutex_);
  if (ranks != ranks_)
    return error(Code::InvalidArgument, "rank {} says that the communicator has {} ranks, others with the same unique id say {}",
                 rank.value, ranks, ranks_);
  if (!arrivals_.emplace(rank.value, arrival).second)
    return error(Code::InvalidUsage, "rank {} has joined already: two callers with the same unique id claim the same rank", rank.value);
  if (arrivals_.size() < static_cast<size_t>(ranks_)) return {};
  try {
    formGroups();
  } catch (const std::bad_alloc&) {  // those who wait get to know, too
    error_ = error(Code::SystemError, "no memory for a communicator of {} ranks", ranks_);
  }
  return {};
}

/// Everybody is there: ranks of one colour, in the order of key and rank, become a communicator.
void Meeting::formGroups() {
  std::vector<Arrival> arrivals;  // of rank 0, 1 …
  for (const auto& [rank, arrival] : arrivals_) arrivals.push_back(arrival);
  std::vector<size_t> order(arrivals.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&arrivals](size_t a, size_t b) {
    return std::pair(arrivals[a].color, arrivals[a].key) < std::pair(arrivals[b].color, arrivals[b].key);
  });
  std::vector<Outcome> outcomes(arrivals.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    const int32_t color = arrivals[order[begin]].color;
    while (end < order.size() && arrivals[order[end]].color == color) ++end;
    if (color == kNoColor) continue;
    Outcome agreed;
    agreed.ranks = static_cast<int32_t>(end - begin);
    auto hub = transport::local::Hub::make(agreed.ranks);
    if (!hub) {  // those who wait get to know, too
      error_ = std::move(hub).error();
      return;
    }
    agreed.hub = std::move(*hub);
    agreed.nursery = std::make_shared<Nursery>();
    for (size_t i = begin; i < end; ++i) {
      agreed.minCtas = std::max(agreed.minCtas, arrivals[order[i]].minCtas);
      agreed.maxCtas = std::min(agreed.maxCtas, arrivals[order[i]].maxCtas);
      agreed.cores = std::max(agreed.cores, arrivals[order[i]].cores);
    }
    for (size_t i = begin; i < end; ++i) {
      agreed.rank = Rank(static_cast<int32_t>(i - begin));
      outcomes[order[i]] = agreed;
    }
  }
  outcomes_ = std::move(outcomes);
}

void Meeting::end(Rank rank, Status cause) {
  const std::lock_guard lock(mutex_);
  if (outcomes_.empty()) {
    if (error_.ok()) error_ = std::move(cause);
  } else if (const auto& hub = outcomes_[static_cast<size_t>(rank.value)].hub) {
    hub->failAll(cause);
  }
}

uint64_t drawToken() { return randomNumber().value_or(0); }

Result<std::shared_ptr<Meeting>> Nursery::arrive(const ChildKey& key, int32_t ranks, Rank rank, const Arrival& arrival) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Meeting>& meeting = meetings_[key];
  if (!meeting) meeting = std::make_shared<Meeting>(ranks);
  std::shared_ptr<Meeting> mine = meeting;
  Status status = mine->join(ranks, rank, arrival);
  if (mine->isComplete()) meetings_.erase(key);
  if (!status.ok()) return tl::unexpected(std::move(status));
  return mine;
}

std::vector<std::pair<ChildKey, std::shared_ptr<Meeting>>> Nursery::open() const {
  const std::lock_guard lock(mutex_);
  return {meetings_.begin(), meetings_.end()};
}

Result<UniqueIdBytes> Rendezvous::makeId() {
  const auto hash = randomNumber();
  if (!hash) return tl::unexpected(hash.error());
  const IdContent content{kMagic, *hash, process().token, static_cast<uint64_t>(getpid())};
  UniqueIdBytes id{};
  std::memcpy(id.data(), &content, sizeof content);
  return id;
}

Result<std::shared_ptr<Meeting>> Rendezvous::arrive(const UniqueIdBytes& id, int32_t ranks, Rank rank, const Arrival& arrival) {
  const IdContent content = contentOf(id);
  if (content.magic != kMagic) return fail(Code::InvalidArgument, "the unique id was not made by ncclGetUniqueId of this library");
  if (content.process != process().token || content.processId != static_cast<uint64_t>(getpid()))
    return fail(
        Code::InvalidUsage,
        "the unique id was made by another process (pid {}): ranks in several processes are not built yet; run the ranks as threads "
        "of one process",
        content.processId);

  const std::lock_guard lock(mutex_);
  if (ended_.count(id) != 0)
    return fail(Code::InvalidUsage,
                "the unique id has served its communicator, or its ranks failed to agree: each communicator needs a new one");
  std::shared_ptr<Meeting>& meeting = meetings_[id];
  if (!meeting) meeting = std::make_shared<Meeting>(ranks);
  std::shared_ptr<Meeting> mine = meeting;
  Status status = mine->join(ranks, rank, arrival);
  if (!status.ok()) {
    // Ranks that cannot agree would wait for ever: they all get to know.
    mine->end(rank, error(Code::InvalidUsage, "another rank failed to join: {}", status.text()));
    remember(id);
    return tl::unexpected(std::move(status));
  }
  if (mine->isOver()) remember(id);
  return mine;
}

void Rendezvous::forget(const UniqueIdBytes& id, const std::shared_ptr<Meeting>& meeting) {
  const std::lock_guard lock(mutex_);
  const auto it = meetings_.find(id);
  if (it != meetings_.end() && it->second == meeting) remember(id);
}

/// Moves an id from those that wait to those that have ended.
void Rendezvous::remember(const UniqueIdBytes& id) {
  meetings_.erase(id);
  if (ended_.insert(id).second) endedOrder_.push_back(id);
  if (endedOrder_.size() > kRemembered) {
    ended_.erase(endedOrder_.front());
    endedOrder_.pop_front();
  }
}

uint64_t Rendezvous::hashOf(const UniqueIdBytes& id) { return contentOf(id).hash; }

}  // namespace tutti::comm
