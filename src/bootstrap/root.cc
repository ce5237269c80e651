#include "bootstrap/root.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "bootstrap/core.h"
#include "bootstrap/uplink.h"

namespace tutti::bootstrap {
namespace {

constexpr std::chrono::milliseconds kReportEvery(2000);
constexpr std::chrono::milliseconds kDoorPause(20);
constexpr int kDoorTries = 200;  // longer than a door lingers
constexpr std::string_view kFailedBefore = "the ranks of the unique id failed to meet before this one came";

}  // namespace

Status alreadyServed(const Status& why) {
  if (why.ok()) return error(Code::InvalidUsage, "the unique id has served its communicator: each communicator needs a new one");
  if (why.text().find(kFailedBefore) != std::string::npos) return why;  // told by the root to this process before
  return error(why.code(), "{}: {}; the next attempt needs a new id", kFailedBefore, why.text());
}

Root::Root(std::shared_ptr<Core> core, UniqueId id, std::shared_ptr<Lease> lease)
    : core_(std::move(core)), id_(std::move(id)), lease_(std::move(lease)) {}

void Root::listenLater(int tries) {
  door_ = Alarm(core_->reactor, kDoorPause, [weak = weak_from_this(), core = core_, tries] {
    const std::lock_guard lock(core->mutex);
    const auto root = weak.lock();
    if (!root || root->isOver_) return;
    auto door = core->leaseAt(root->id_.addresses);
    if (door) {
      root->lease_ = std::move(*door);
    } else if (tries < kDoorTries) {
      root->listenLater(tries + 1);
    } else {
      root->fail(door.error());
    }
  });
}

Status Root::enroll(const std::shared_ptr<PartyPort>& party, const Enroll& message) {
  if (isOver_) return core_->fateOf(id_.hash);
  if (isComplete_) return alreadyServed({});
  Status status = gathering_.enroll(message.division, message.member, message.rank, message.note);
  if (!status.ok()) return refuse(party, std::move(status));
  partyOf(party).ranks.push_back(message.rank);
  if (ownRank_ < 0 && message.member.token == core_->token) {
    ownRank_ = message.rank;
    for (const auto& [port, other] : parties_) other.port->onWelcome(welcome());
  }
  if (!std::exchange(reportsSoon_, true)) {  // who has come has not been told yet; where many come one by one, not each time
    reportLater(reportAfter_);
    reportAfter_ = std::min(2 * reportAfter_, kReportEvery);
  }
  if (message.rank == 0) setUpMs_ = std::clamp<int64_t>(message.setUpMs, 1, 3'600'000);
  if (message.division.index > 0) firstId_ = message.firstId;
  if (gathering_.isComplete()) {
    isComplete_ = true;
    message.division.index == 0 ? distribute() : bringUp();
  }
  return {};
}

Status Root::bring(const std::shared_ptr<PartyPort>& party, const Part& message) {
  if (isOver_) return core_->fateOf(id_.hash);
  if (isComplete_) return alreadyServed({});
  Status status = gathering_.take(message);
  if (!status.ok()) return refuse(party, std::move(status));
  Party& root = partyOf(party);
  for (const Part::Entry& entry : message.entries) root.ranks.push_back(entry.rank);
  std::sort(root.ranks.begin(), root.ranks.end());
  if (gathering_.isComplete()) {
    isComplete_ = true;
    distribute();
  }
  return {};
}

/// Ranks that cannot agree would wait for ever: they all get to know.
Status Root::refuse(const std::shared_ptr<PartyPort>& party, Status why) {
  fail(error(Code::InvalidUsage, "another rank failed to join: {}", why.text()), party.get());
  return why;
}

void Root::distribute() {
  Table table = gathering_.table();
  table.number = randomNumber();
  fillRandom(table.key);
  table.setUpMs = setUpMs_;
  if (table.members.size() > 1) startTimer();
  const auto home = std::find_if(parties_.begin(), parties_.end(), [](const auto& entry) {
    return std::find(entry.second.ranks.begin(), entry.second.ranks.end(), 0) != entry.second.ranks.end();
  });
  if (home == parties_.end()) return fail(error(Code::InternalError, "rank 0 registered with another root than the first"));
  const std::shared_ptr<PartyPort> port = home->second.port;
  port->onTable(table);
}

/// The way to the first root. Null: this is the first, or nobody has said who is.
std::shared_ptr<RootPort> Root::wayUp() {
  const auto first = UniqueId::decode(firstId_);
  if (!first) return nullptr;
  if (const auto root = core_->findRoot(*first)) return makeLocalPort(root, shared_from_this());
  return Uplink::start(core_, *first, weak_from_this(), lease_);
}

void Root::bringUp() {
  first_ = wayUp();
  if (!first_) return fail(error(Code::InvalidArgument, "a rank has named no root as the first of several"));
  const std::shared_ptr<RootPort> port = first_;
  if (Status status = port->bring(gathering_.part()); !status.ok()) fail(status);
}

void Root::ready(const PartyPort& party) {
  const auto found = parties_.find(&party);
  if (isOver_ || found == parties_.end()) return;
  if (!std::exchange(found->second.isReady, true)) --unready_;  // one may say so twice
  if (unready_ > 0) return;
  if (first_) {
    const std::shared_ptr<RootPort> port = first_;
    port->ready();
  } else if (isComplete_) {
    onGo();
  }
}

void Root::onGo() {
  if (isOver_) return;
  for (auto& [port, party] : finish({})) party.port->onGo();
}

void Root::giveUp(const PartyPort& party, const Status& cause) { fail(cause, &party); }

void Root::lose(const PartyPort& party, const Status& cause) {
  const auto found = parties_.find(&party);
  if (isOver_ || found == parties_.end()) return;
  fail(error(Code::RemoteError, "{} went away while the communicator was made: {}", describe(found->second), cause.text()), &party);
}

void Root::fail(const Status& cause, const PartyPort* except) {
  if (isOver_) return;
  if (!isComplete_) first_ = wayUp();  // it waits for this block
  const std::shared_ptr<RootPort> first = std::exchange(first_, nullptr);
  auto parties = finish(cause);
  for (auto& [port, party] : parties) {
    if (port != except) party.port->onTrouble(cause);
  }
  if (first) first->giveUp(cause);
}

void Root::failForLack(const Status& cause) {
  isLacking_ = true;
  fail(cause);
}

void Root::onTrouble(const Status& cause) {
  first_.reset();
  fail(cause);
}

void Root::onTable(const Table&) { fail(error(Code::InternalError, "a root was sent the table, which is for the process of rank 0")); }

void Root::onWelcome(const Welcome&) {}

void Root::onMissing(const std::string& text) {
  for (const auto& [port, party] : parties_) party.port->onMissing(text);
}

/// Takes it out of the service; what is left to say is said by the caller.
std::map<const PartyPort*, Root::Party> Root::finish(const Status& why) {
  isOver_ = true;
  limit_.cancel();
  door_.cancel();
  report_.cancel();
  // Who is on the way, or comes a little later, is to hear why, not to find the door closed. A port that is named is wanted by the
  // next communicator, and whoever comes there later by the next root.
  if (!why.ok() && !isComplete_ && lease_ && !id_.isFixed) core_->linger(std::move(lease_));
  if (isLacking_ && lease_) core_->lingerWhileAwaited(std::move(lease_));
  lease_.reset();
  auto parties = std::move(parties_);
  parties_.clear();
  core_->retire(*this, why);
  return parties;
}

void Root::startTimer() {
  limit_ = Alarm(core_->reactor, std::chrono::milliseconds(setUpMs_), [weak = weak_from_this(), core = core_] {
    const std::lock_guard lock(core->mutex);
    if (const auto root = weak.lock()) root->expire();
  });
}

void Root::expire() {
  if (isOver_) return;
  fail(error(Code::RemoteError, "the set-up of the communicator took longer than {} ms after all ranks had come; not ready: {}", setUpMs_,
             describeUnready()));
}

std::string Root::describeUnready() const {
  constexpr size_t kMost = 8;  // parties; the rest is counted: all of them are told, again and again
  std::string late;
  size_t count = 0;
  for (const auto& [port, party] : parties_) {
    if (!party.isReady && ++count <= kMost) late += (late.empty() ? "" : "; ") + describe(party);
  }
  return count <= kMost ? late : late + format(" and {} more", count - kMost);
}

std::string Root::describeMissing() const {
  if (!isComplete_) return gathering_.describeMissing();
  const std::string late = describeUnready();
  return late.empty() ? "ranks that other unique ids are for" : late;
}

/// Those in other processes cannot look for themselves.
void Root::reportLater(std::chrono::milliseconds after) {
  if (!lease_) return;
  report_ = Alarm(core_->reactor, after, [weak = weak_from_this(), core = core_] {
    const std::lock_guard lock(core->mutex);
    const auto root = weak.lock();
    if (!root || root->isOver_) return;
    root->reportsSoon_ = false;
    root->onMissing(root->describeMissing());
    root->reportLater(kReportEvery);
  });
}

std::string Root::describe(const Party& party) const {
  if (party.ranks.empty()) return "a process that had not registered a rank yet";
  const Member* const member = gathering_.memberOf(party.ranks.front());
  const std::string ranks = describeRanks(party.ranks);
  return member == nullptr ? ranks : format("{} (process {} on {})", ranks, member->pid, member->hostName);
}

Root::Party& Root::partyOf(const std::shared_ptr<PartyPort>& port) {
  Party& party = parties_[port.get()];
  if (!std::exchange(party.port, port)) {
    ++unready_;
    port->onWelcome(welcome());
  }
  return party;
}

Welcome Root::welcome() const { return {static_cast<int32_t>(getpid()), core_->describeSelf({}).hostName, ownRank_}; }

}  // namespace tutti::bootstrap
