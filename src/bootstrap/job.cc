#include "bootstrap/job.h"

#include <algorithm>
#include <utility>

#include "bootstrap/core.h"
#include "bootstrap/mesh_core.h"
#include "bootstrap/root.h"
#include "bootstrap/share.h"
#include "bootstrap/tree.h"
#include "bootstrap/uplink.h"

namespace tutti::bootstrap {
namespace {

constexpr std::chrono::milliseconds kRootsMoment(250);
constexpr std::chrono::milliseconds kForLastWords(1000);

}  // namespace

Job::Job(std::shared_ptr<Core> core, std::vector<UniqueId> ids, std::vector<UniqueIdBytes> raw, int32_t ranks, std::shared_ptr<Lease> lease)
    : core_(std::move(core)),
      ids_(std::move(ids)),
      raw_(std::move(raw)),
      ranks_(ranks),
      unsaid_(core_->unsaidOf(firstId().hash)),
      lease_(std::move(lease)) {}

bool Job::isOf(std::span<const UniqueIdBytes> raw) const { return std::equal(raw.begin(), raw.end(), raw_.begin(), raw_.end()); }

Status Job::enroll(Rank rank, int32_t ranks, const Note& note, MakeShared makeShared, Limits limits) {
  const Member& self = self_ ? *self_ : self_.emplace(core_->describeSelf(lease_ ? lease_->addresses : std::vector<Address>()));
  if (!makeShared_) makeShared_ = std::move(makeShared);
  const Block block = blockOf(rank.value, ranks, static_cast<int32_t>(ids_.size()));
  std::shared_ptr<RootPort>& port = ports_[block.index];
  if (!port) {
    const UniqueId& id = ids_[static_cast<size_t>(block.index)];
    if (const auto root = core_->findRoot(id)) {
      port = makeLocalPort(root, shared_from_this());
    } else {
      port = Uplink::start(core_, id, weak_from_this(), lease_, block.index > 0 ? &firstId() : nullptr);
    }
  }
  // What this rank says, also where it contradicts the others: the root tells them all.
  Enroll message{{ranks, static_cast<int32_t>(ids_.size()), block.index}, {}, self, rank.value, note, limits.setUp.count()};
  if (ids_.size() > 1) message.firstId = raw_.front();
  ownRanks_.insert(rank.value);
  const std::shared_ptr<RootPort> kept = port;  // the last rank may end it
  Status status = kept->enroll(message);
  if (!status.ok()) fail(error(Code::InvalidUsage, "another rank failed to join: {}", status.text()));
  return status;
}

std::string Job::describeMissing() const {
  std::string text;
  for (const auto& [index, port] : ports_) text += (text.empty() ? "" : "; ") + port->describe();
  return text.empty() ? "no rank" : text;
}

void Job::end(Rank rank, const Status& cause) {
  if (!isOver()) return fail(cause);
  if (mesh_) mesh_->announceTrouble(error(cause.code(), "rank {}: {}", rank.value, cause.text()));
}

void Job::fail(const Status& cause) {
  if (isOver()) return;
  const auto ports = std::exchange(ports_, {});
  for (const auto& [index, port] : ports) port->giveUp(cause);
  conclude(tl::unexpected(cause));
}

std::optional<Job::Outcome> Job::poll() const {
  if (!isOver()) return std::nullopt;
  const std::lock_guard lock(outcomeMutex_);
  if (outcome_ && !*outcome_ && hasUnsaid() && std::chrono::steady_clock::now() - overSince_ < kForLastWords) return std::nullopt;
  return outcome_;
}

Status Job::failure() const {
  if (!isOver()) return {};
  const std::lock_guard lock(outcomeMutex_);
  return outcome_ && !*outcome_ ? outcome_->error() : Status();
}

void Job::conclude(Outcome outcome) {
  if (isOver()) return;
  const bool isWell = outcome.has_value();
  {
    const std::lock_guard lock(outcomeMutex_);
    outcome_ = std::move(outcome);
    overSince_ = std::chrono::steady_clock::now();
  }
  isOver_.store(true, std::memory_order_release);
  failure_.cancel();
  ports_.clear();
  if (offer_) core_->reactor.post([offer = std::exchange(offer_, nullptr)] { offer->close(); });
  if (const auto mesh = isWell ? nullptr : std::exchange(mesh_, nullptr)) {
    mesh->announceTrouble(outcome_->error());  // for those who may have been told to go while this process was not
    mesh->close();
  }
  lease_.reset();
  core_->retire(*this, outcome_->has_value() ? Status() : outcome_->error());
}

void Job::onTable(const Table& table) { acceptTable(table, nullptr); }

void Job::onTrouble(const Status& cause) {
  const auto ports = std::exchange(ports_, {});
  for (const auto& [index, port] : ports) port->giveUp(cause);  // the other roots, if there are several
  conclude(tl::unexpected(cause));
}

void Job::onLost(const Status& cause) {
  if (ports_.size() < 2) return onUnreached(cause);  // it may not have told the first root
  if (isOver() || failure_) return;
  failure_ = Alarm(core_->reactor, kRootsMoment, [weak = weak_from_this(), core = core_, cause] {
    const std::lock_guard lock(core->mutex);
    if (const auto self = weak.lock()) self->onTrouble(cause);
  });
}

/// With several ids the first root waits for what that one would have brought.
void Job::onUnreached(const Status& cause) {
  if (isOver()) return;
  if (ports_.count(0) == 0) {
    const Status named = core_->inOwnName("a process with other ranks", cause);
    if (const auto root = core_->findRoot(firstId())) {
      root->fail(named);
    } else {
      Uplink::start(core_, firstId(), {}, lease_)->giveUp(named);
    }
  }
  onTrouble(cause);
}

void Job::onGo() {
  if (isOver() || !roster_) return;
  std::shared_ptr<Roster> roster = std::exchange(roster_, nullptr);
  roster->shared = std::move(shared_);
  if (mesh_) roster->mesh = MeshCore::makeHandle(mesh_);
  conclude(std::shared_ptr<const Roster>(std::move(roster)));  // none stays here: the last one that goes says goodbye
}

void Job::acceptTable(const Table& table, const std::shared_ptr<Link>& fromParent) {
  if (isOver() || roster_) return;
  auto roster = makeRoster(table, firstId().hash, core_->token);
  if (roster && (*roster)->ranks != ranks_)
    roster = tutti::fail(Code::InternalError, "the table has {} ranks, not {}", (*roster)->ranks, ranks_);
  if (!roster) return fail(roster.error());
  roster_ = std::move(*roster);
  setUp_ = std::chrono::milliseconds(table.setUpMs);
  if (table.members.size() == 1) return sayReady();
  auto mesh = MeshCore::make(core_, *roster_, table.key, lease_);
  mesh_ = mesh;
  if (fromParent) mesh->adoptParent(fromParent);
  core_->reactor.post([self = shared_from_this(), table] { self->spread(table); });
}

void Job::awaitTable(const std::shared_ptr<Link>& link) {
  link->start(
      [weak = weak_from_this(), link = std::weak_ptr(link)](Kind kind, std::span<const std::byte> payload) {
        const auto self = weak.lock();
        const auto parent = link.lock();
        const auto table = kind == Kind::Table && self && parent ? decodeTable(payload) : std::nullopt;
        if (!table) return parent ? parent->close() : void();
        const std::lock_guard lock(self->core_->mutex);
        self->acceptTable(*table, parent);
      },
      [](const Status&) {});  // the root hears of a process that goes
}

void Job::spread(const Table& table) {
  std::shared_ptr<MeshCore> mesh;
  {
    const std::lock_guard lock(core_->mutex);
    if (isOver()) return;
    mesh = mesh_;
  }
  shareMemory(table);
  mesh->spread(std::make_shared<const std::vector<std::byte>>(encode(table)), firstId(), [weak = weak_from_this()](const Status& cause) {
    if (const auto self = weak.lock()) self->failUnlocked(cause);
  });
}

/// The first process of a host opens the door to what it made before its children hear of it.
void Job::shareMemory(const Table& table) {
  std::shared_ptr<const Roster> roster;
  {
    const std::lock_guard lock(core_->mutex);
    if (isOver()) return;
    roster = roster_;
  }
  const std::vector<int32_t>& local = roster->host(roster->ownHost).processes;
  const SharePlace place{table.number, table.key, roster->ownHost};
  if (local.size() == 1) return onShared(UniqueFd());
  if (local.front() != roster->ownProcess) {
    return fetchShared(core_->reactor, place, setUp_, [weak = weak_from_this()](Result<UniqueFd> fd) {
      if (const auto self = weak.lock()) self->onShared(std::move(fd));
    });
  }
  Result<UniqueFd> made = makeShared_ ? makeShared_(*roster) : tutti::fail(Code::InternalError, "nothing makes memory to share");
  if (made) {
    auto offer = offerShared(core_->reactor, place, made->get());
    if (!offer) return failUnlocked(offer.error());
    const std::lock_guard lock(core_->mutex);
    offer_ = std::move(*offer);
  }
  onShared(std::move(made));
}

void Job::onShared(Result<UniqueFd> fd) {
  if (!fd) return failUnlocked(fd.error());
  const std::lock_guard lock(core_->mutex);
  if (isOver()) return;
  shared_ = std::move(*fd);
  sayReady();
}

void Job::sayReady() {
  const auto ports = ports_;  // the last one may end it
  for (const auto& [index, port] : ports) port->ready();
}

/// Where another process does not answer, the root may know better what became of it: it has a moment to say so.
void Job::failUnlocked(const Status& cause, bool isFinal) {
  const std::lock_guard lock(core_->mutex);
  if (isOver() || !self_) return;
  if (cause.code() == Code::RemoteError && !isFinal) {
    failure_ = Alarm(core_->reactor, kRootsMoment, [weak = weak_from_this(), cause] {
      if (const auto self = weak.lock()) self->failUnlocked(cause, true);
    });
    return;
  }
  const std::vector<int32_t> ranks(ownRanks_.begin(), ownRanks_.end());
  fail(error(cause.code(), "{} (process {} on {}): {}", describeRanks(ranks), self_->pid, self_->hostName, cause.text()));
}

Result<std::shared_ptr<Roster>> makeRoster(const Table& table, uint64_t commId, uint64_t ownToken) {
  auto roster = std::make_shared<Roster>();
  roster->ranks = static_cast<int32_t>(table.memberOf.size());
  roster->commId = commId;
  roster->number = table.number;
  roster->processOf = table.memberOf;
  roster->notes = table.notes;
  roster->ownProcess = -1;
  std::unordered_map<uint64_t, int32_t> hostOf;
  for (size_t i = 0; i < table.members.size(); ++i) {
    const Member& member = table.members[i];
    const auto [place, isNew] = hostOf.try_emplace(member.hostIdentity, static_cast<int32_t>(roster->hosts.size()));
    if (isNew) roster->hosts.push_back({member.hostName, member.hostIdentity, {}});
    roster->hosts[static_cast<size_t>(place->second)].processes.push_back(static_cast<int32_t>(i));
    roster->processes.push_back({member.token, member.pid, place->second, {}, member.addresses});
    if (member.token == ownToken) roster->ownProcess = static_cast<int32_t>(i);
  }
  for (int32_t rank = 0; rank < roster->ranks; ++rank)
    roster->processes[static_cast<size_t>(roster->processOf[static_cast<size_t>(rank)])].ranks.push_back(rank);
  if (roster->ownProcess < 0) return tutti::fail(Code::InternalError, "this process is not in the table of the communicator");
  roster->ownHost = roster->process(roster->ownProcess).host;
  return roster;
}

}  // namespace tutti::bootstrap
