#include "comm/founding.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "bootstrap/mesh.h"
#include "comm/courier.h"
#include "comm/losses.h"

namespace tutti::comm {

using bootstrap::Note;
using bootstrap::Roster;
using transport::local::Arena;
using transport::local::Hub;

static_assert(std::is_trivially_copyable_v<Arrival> && sizeof(Arrival) <= sizeof(Note));

Note noteOf(const Arrival& arrival) {
  Note note{};
  std::memcpy(note.data(), &arrival, sizeof arrival);
  return note;
}

Result<std::vector<Arrival>> arrivalsOf(const Roster& roster) {
  std::vector<Arrival> arrivals(roster.notes.size());
  for (size_t r = 0; r < arrivals.size(); ++r) {
    std::memcpy(&arrivals[r], roster.notes[r].data(), sizeof(Arrival));
    const Arrival& own = arrivals[r];
    const Arrival& before = arrivals[r == 0 ? 0 : r - 1];
    if (!isPossible(own) || own.color == kNoColor || own.color != before.color || own.key < before.key)
      return fail(Code::RemoteError, "rank {} says of itself what makes no sense: does the process of {} use another version of this "
                                     "library?",
                  r, describeProcess(roster, roster.processOf[r]));
  }
  return arrivals;
}

namespace {

/// Runs in the host's first process: the file, with an arena and the hub of all ranks in it.
Result<UniqueFd> makeShared(const Roster& roster) {
  auto file = Arena::createFile();
  if (!file) return file;
  const auto arena = Arena::attach(file->get(), nullptr, roster.host(roster.ownHost).processes, -1);
  if (!arena) return tl::unexpected(arena.error());
  const auto hub = Hub::format(**arena, roster.number, roster.processOf);
  if (!hub) return tl::unexpected(hub.error());
  (*arena)->root().store(*hub, std::memory_order_release);  // pairs with Foundation::outcome
  return file;
}

}  // namespace

/// What the ranks of this process build on.
struct Foundations::Foundation {
  std::shared_ptr<const Roster> roster;
  std::shared_ptr<Arena> arena;      // null: one process in all
  uint64_t ownHub = 0;               // its place, where this process is alone on its host
  std::shared_ptr<Courier> courier;  // null: one host
  std::shared_ptr<Hub> hub;          // of one process in all
  mutable std::mutex mutex;
  mutable std::shared_ptr<Hub> kept;  // until all ranks of this process have it: what one sends and leaves goes through it
  Grouping grouping;
  std::shared_ptr<const std::vector<Arrival>> members;
  mutable std::unique_ptr<SitesExchange> sites;  // under the mutex; null: one host

  /// What the hosts are like; nothing while that is on its way.
  std::optional<Result<std::shared_ptr<const Sites>>> pollSites() const {
    const std::lock_guard lock(mutex);
    if (sites == nullptr) return Result<std::shared_ptr<const Sites>>(nullptr);
    return sites->poll();
  }

  /// The processes that have not come to what this one waits for.
  std::string describeMissing() const {
    std::vector<int32_t> missing;
    for (const int32_t process : roster->host(roster->ownHost).processes)
      if (arena != nullptr && arena->isShared() && arena->entry(process) == nullptr) missing.push_back(process);
    const std::lock_guard lock(mutex);
    if (missing.empty() && sites != nullptr) missing = sites->missing();
    return missing.empty() ? "no ranks" : bootstrap::describeProcesses(*roster, missing);
  }

  /// Nothing while other processes of the host are still on their way. One that died on it will never come.
  std::optional<Result<Outcome>> outcome(Rank rank) const {
    if (arena != nullptr && !arena->isComplete()) {
      const auto losses = arena->losses();
      if (losses.empty()) return std::nullopt;
      return tl::unexpected(losses.begin()->second);
    }
    auto met = pollSites();
    if (!met) return std::nullopt;
    if (!*met) return tl::unexpected(std::move(*met).error());
    Outcome outcome{hub, grouping.places[static_cast<size_t>(rank.value)], members, **std::move(met)};
    if (arena == nullptr) return outcome;
    const uint64_t place = arena->isShared() ? arena->root().load(std::memory_order_acquire) : ownHub;  // pairs with makeShared
    auto attached = Hub::attach(arena, place, roster->ranks);
    if (!attached) return tl::unexpected(std::move(attached).error());
    outcome.hub = std::move(*attached);
    {
      const std::lock_guard lock(mutex);
      kept = outcome.hub;
    }
    if (courier != nullptr) courier->introduce(outcome.hub);
    failIfLost(*outcome.hub);
    return outcome;
  }
};

/// Attaches the memory of the host, if several processes of it take part, and listens to the others.
Status Foundations::share(Foundation& foundation, const Wish& wish) const {
  const Roster& roster = *foundation.roster;
  const auto& here = roster.host(roster.ownHost).processes;
  if (here.size() > 1) {
    auto arena = Arena::attach(roster.shared.get(), foundation.roster, here, roster.ownProcess);
    if (!arena) return std::move(arena).error();
    foundation.arena = std::move(*arena);
  } else {
    foundation.arena = Arena::ofThreads(roster.ownProcess, foundation.roster);
    const auto place = Hub::format(*foundation.arena, roster.number, roster.processOf);
    if (!place) return place.error();
    foundation.ownHub = *place;
  }
  if (roster.hosts.size() > 1) {
    const auto engine = engine_(wish);
    if (!engine) return engine.error();
    foundation.courier = std::make_shared<Courier>(roster, *engine);
    const bool onGpu = foundation.grouping.places.front().multiprocessors > 0;
    auto site = site_((*engine)->network(), onGpu);
    if (!site) return std::move(site).error();
    foundation.sites = std::make_unique<SitesExchange>(roster, *std::move(site));
  }
  // The arena keeps the roster, and with it the mesh and these handlers: they need no more than a weak pointer back.
  roster.mesh->setHandlers(
      [courier = foundation.courier](int32_t process, std::span<const std::byte> message) {
        if (courier != nullptr) courier->hear(process, message);
      },
      [weak = std::weak_ptr(foundation.arena), &roster](int32_t process, const Status& cause) {
        if (const auto alive = weak.lock()) failWithout(*alive, roster, process, cause);
      });
  if (foundation.arena->isShared()) foundation.arena->announce(roster.process(roster.ownProcess).token, exportsFd_());
  return {};
}

Result<std::shared_ptr<Foundations::Foundation>> Foundations::of(const std::shared_ptr<const Roster>& roster, const Wish& wish) {
  const std::lock_guard lock(mutex_);
  const auto [at, isNew] = entries_.try_emplace(roster.get());
  Entry& entry = at->second;
  if (entry.foundation != nullptr) return entry.foundation;
  if (isNew) entry.awaited = roster->process(roster->ownProcess).ranks.size();
  auto made = std::make_shared<Foundation>();
  made->roster = roster;
  const auto arrivals = arrivalsOf(*roster);
  if (!arrivals) return tl::unexpected(arrivals.error());
  made->grouping = formGroups(*arrivals);
  made->members = membersOf(*arrivals, made->grouping.members.front());
  if (roster->processes.size() > 1) {
    if (Status status = share(*made, wish); !status.ok()) return tl::unexpected(std::move(status));
  } else {
    auto hub = Hub::make(roster->ranks);
    if (!hub) return tl::unexpected(std::move(hub).error());
    made->hub = std::move(*hub);
  }
  return entry.foundation = std::move(made);
}

void Foundations::leave(const Roster* roster) {
  Entry ended;  // destroyed after the lock is gone
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(roster);
  if (found == entries_.end() || --found->second.awaited > 0) return;
  ended = std::move(found->second);
  entries_.erase(found);
}

class Foundations::Join final : public Encounter {
 public:
  Join(Foundations& all, std::shared_ptr<bootstrap::Participant> participant, Rank rank, Wish wish)
      : all_(all), participant_(std::move(participant)), rank_(rank), wish_(std::move(wish)) {}
  ~Join() override {
    if (!left_ && roster_ != nullptr) all_.leave(roster_.get());
  }
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  std::optional<Result<Outcome>> poll() override {
    if (outcome_) return outcome_;
    if (roster_ == nullptr) {
      auto met = participant_->poll();
      if (!met) return std::nullopt;
      if (!*met) return outcome_.emplace(tl::unexpected(std::move(*met).error()));
      roster_ = std::move(**met);
    }
    const auto foundation = all_.of(roster_, wish_);
    if (!foundation) return outcome_.emplace(tl::unexpected(foundation.error()));
    outcome_ = (*foundation)->outcome(rank_);
    if (outcome_) {
      left_ = true;
      all_.leave(roster_.get());
    }
    return outcome_;
  }

  void end(const Status& cause) override {
    participant_->end(cause);
    (void)poll();  // the others may have found that all are there, and wait at the hub
    if (outcome_ && *outcome_ && (*outcome_)->hub != nullptr) (*outcome_)->hub->failAll(cause);
  }

  Status failure() const override { return roster_ == nullptr ? participant_->failure() : Status(); }

  std::string describeMissing(std::span<const int32_t> /*names*/) const override {
    if (outcome_) return "no ranks";
    if (roster_ == nullptr) return participant_->describeMissing();
    const auto foundation = all_.of(roster_, wish_);
    return foundation ? (*foundation)->describeMissing() : foundation.error().text();
  }

 private:
  Foundations& all_;
  const std::shared_ptr<bootstrap::Participant> participant_;
  const Rank rank_;
  const Wish wish_;
  std::shared_ptr<const Roster> roster_;
  std::optional<Result<Outcome>> outcome_;
  bool left_ = false;
};

std::shared_ptr<Encounter> Foundations::join(bootstrap::Service& service, std::span<const UniqueIdBytes> ids, int32_t ranks, Rank rank,
                                             const Arrival& arrival, const Wish& wish) {
  return std::make_shared<Join>(*this, service.join(ids, ranks, rank, noteOf(arrival), makeShared), rank, wish);
}

}  // namespace tutti::comm
