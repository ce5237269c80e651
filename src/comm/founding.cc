#include "comm/founding.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "bootstrap/mesh.h"
#include "comm/losses.h"

namespace tutti::comm {

using bootstrap::Note;
using bootstrap::Roster;
using transport::local::Arena;
using transport::local::Hub;

namespace {

static_assert(std::is_trivially_copyable_v<Arrival> && sizeof(Arrival) <= sizeof(Note));

Note noteOf(const Arrival& arrival) {
  Note note{};
  std::memcpy(note.data(), &arrival, sizeof arrival);
  return note;
}

Arrival arrivalOf(const Note& note) {
  Arrival arrival;
  std::memcpy(&arrival, note.data(), sizeof arrival);
  return arrival;
}

/// For each rank its process among those of this host; -1: on another host.
std::vector<int32_t> processesOnHost(const bootstrap::Membership& all) {
  const auto& here = all.host(all.ownHost).processes;
  std::vector<int32_t> processOf;
  for (const int32_t process : all.processOf) {
    const auto found = std::find(here.begin(), here.end(), process);
    processOf.push_back(found == here.end() ? -1 : static_cast<int32_t>(found - here.begin()));
  }
  return processOf;
}

/// Runs in the host's first process: the file, with an arena and the hub of all ranks in it.
Result<UniqueFd> makeShared(const Roster& roster) {
  auto file = Arena::createFile();
  if (!file) return file;
  const auto arena = Arena::attach(file->get(), nullptr, static_cast<int32_t>(roster.host(roster.ownHost).processes.size()), -1);
  if (!arena) return tl::unexpected(arena.error());
  const auto hub = Hub::format(**arena, processesOnHost(roster));
  if (!hub) return tl::unexpected(hub.error());
  (*arena)->root().store(*hub, std::memory_order_release);  // pairs with Foundations::share
  return file;
}

}  // namespace

/// What the ranks of this process build on.
struct Foundations::Foundation {
  std::shared_ptr<const Roster> roster;
  std::shared_ptr<Arena> arena;  // null: one process
  std::shared_ptr<Hub> hub;      // of one process
  Grouping grouping;

  /// Nothing while other processes of the host are still on their way. One that died on it will never come.
  std::optional<Result<Outcome>> outcome(Rank rank) const {
    if (arena != nullptr && !arena->isComplete()) {
      const auto losses = arena->losses();
      if (losses.empty()) return std::nullopt;
      return tl::unexpected(losses.begin()->second);
    }
    Outcome outcome{hub, grouping.places[static_cast<size_t>(rank.value)]};
    if (arena == nullptr) return outcome;
    auto attached = Hub::attach(arena, arena->root().load(std::memory_order_acquire), roster->ranks);  // pairs with makeShared
    if (!attached) return tl::unexpected(std::move(attached).error());
    outcome.hub = std::move(*attached);
    failIfLost(*outcome.hub);
    return outcome;
  }
};

/// Attaches the memory of the host and says to the others that this process has come.
Status Foundations::share(Foundation& foundation) const {
  const Roster& roster = *foundation.roster;
  const auto& here = roster.host(roster.ownHost).processes;
  const auto self = static_cast<int32_t>(std::find(here.begin(), here.end(), roster.ownProcess) - here.begin());
  auto arena = Arena::attach(roster.shared.get(), foundation.roster, static_cast<int32_t>(here.size()), self);
  if (!arena) return std::move(arena).error();
  // The arena keeps the roster, and with it the mesh: neither needs the other's pointer.
  roster.mesh->setHandlers([](int32_t, std::span<const std::byte>) {},
                           [weak = std::weak_ptr(*arena), &roster](int32_t process, const Status& cause) {
                             if (const auto alive = weak.lock()) failWithout(*alive, roster, process, cause);
                           });
  (*arena)->announce(roster.process(roster.ownProcess).token, exportsFd_());
  foundation.arena = std::move(*arena);
  return {};
}

Result<std::shared_ptr<Foundations::Foundation>> Foundations::of(const std::shared_ptr<const Roster>& roster) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[roster.get()];
  if (entry.foundation != nullptr) return entry.foundation;
  entry.awaited = roster->process(roster->ownProcess).ranks.size();
  auto made = std::make_shared<Foundation>();
  made->roster = roster;
  std::vector<Arrival> arrivals;
  for (const Note& note : roster->notes) arrivals.push_back(arrivalOf(note));
  made->grouping = formGroups(arrivals);
  if (roster->hosts.size() > 1)
    return fail(Code::InvalidUsage, "ranks on {} hosts: sockets between hosts are not built yet; run all ranks on one host",
                roster->hosts.size());
  if (roster->processes.size() > 1) {
    if (Status status = share(*made); !status.ok()) return tl::unexpected(std::move(status));
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
  Join(Foundations& all, std::shared_ptr<bootstrap::Participant> participant, Rank rank)
      : all_(all), participant_(std::move(participant)), rank_(rank) {}
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
    const auto foundation = all_.of(roster_);
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
    if (outcome_ && *outcome_ && (*outcome_)->hub != nullptr) (*outcome_)->hub->failAll(cause);
  }

  std::string describeMissing(std::span<const int32_t> /*names*/) const override {
    return roster_ == nullptr ? participant_->describeMissing() : "other processes of this host";
  }

 private:
  Foundations& all_;
  const std::shared_ptr<bootstrap::Participant> participant_;
  const Rank rank_;
  std::shared_ptr<const Roster> roster_;
  std::optional<Result<Outcome>> outcome_;
  bool left_ = false;
};

std::shared_ptr<Encounter> Foundations::join(bootstrap::Service& service, std::span<const UniqueIdBytes> ids, int32_t ranks, Rank rank,
                                             const Arrival& arrival) {
  return std::make_shared<Join>(*this, service.join(ids, ranks, rank, noteOf(arrival), makeShared), rank);
}

}  // namespace tutti::comm
