#include "comm/rendezvous.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

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

uint64_t processToken() {
  static const uint64_t token = randomNumber().value_or(0);
  return token;
}

IdContent contentOf(const UniqueIdBytes& id) {
  IdContent content;
  std::memcpy(&content, id.data(), sizeof content);
  return content;
}

}  // namespace

Result<Meeting::Outcome> Meeting::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return outcome_.hub != nullptr || !error_.ok(); });
  if (!error_.ok()) return tl::unexpected(error_);
  return outcome_;
}

Status Meeting::join(int32_t ranks, Rank rank, int32_t minCtas, int32_t maxCtas) {
  const std::lock_guard lock(mutex_);
  if (ranks != ranks_)
    return error(Code::InvalidArgument, "rank {} says that the communicator has {} ranks, others with the same unique id say {}",
                 rank.value, ranks, ranks_);
  if (present_[static_cast<size_t>(rank.value)])
    return error(Code::InvalidUsage, "rank {} has joined already: two callers with the same unique id claim the same rank", rank.value);
  present_[static_cast<size_t>(rank.value)] = true;
  outcome_.minCtas = std::max(outcome_.minCtas, minCtas);
  outcome_.maxCtas = std::min(outcome_.maxCtas, maxCtas);
  if (++arrived_ == ranks_) {
    outcome_.hub = std::make_shared<transport::local::Hub>(ranks_);
    changed_.notify_all();
  }
  return {};
}

void Meeting::end(Status cause) {
  const std::lock_guard lock(mutex_);
  if (outcome_.hub != nullptr) {
    outcome_.hub->failAll(cause);
  } else if (error_.ok()) {
    error_ = std::move(cause);
  }
  changed_.notify_all();
}

Result<UniqueIdBytes> Rendezvous::makeId() {
  const auto hash = randomNumber();
  if (!hash) return tl::unexpected(hash.error());
  const IdContent content{kMagic, *hash, processToken(), static_cast<uint64_t>(getpid())};
  UniqueIdBytes id{};
  std::memcpy(id.data(), &content, sizeof content);
  return id;
}

Result<std::shared_ptr<Meeting>> Rendezvous::arrive(const UniqueIdBytes& id, int32_t ranks, Rank rank, int32_t minCtas, int32_t maxCtas) {
  const IdContent content = contentOf(id);
  if (content.magic != kMagic) return fail(Code::InvalidArgument, "the unique id was not made by ncclGetUniqueId of this library");
  if (content.process != processToken() || content.processId != static_cast<uint64_t>(getpid()))
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
  Status status = mine->join(ranks, rank, minCtas, maxCtas);
  if (!status.ok()) {
    // Ranks that cannot agree would wait for ever: they all get to know.
    mine->end(error(Code::InvalidUsage, "another rank failed to join: {}", status.text()));
    remember(id);
    return tl::unexpected(std::move(status));
  }
  const std::lock_guard inner(mine->mutex_);
  if (mine->outcome_.hub != nullptr) remember(id);
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
