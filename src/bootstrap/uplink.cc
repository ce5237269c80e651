#include "bootstrap/uplink.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "bootstrap/core.h"
#include "bootstrap/last_words.h"
#include "bootstrap/wire.h"
#include "observe/log.h"

namespace tutti::bootstrap {
namespace {

/// The root of an id that was made listens before anybody knows the id: who is refused for so many tries is so for good.
constexpr int64_t kTriesOfMadeIds = 10;
/// For last words to a root that has not been reached.
constexpr std::chrono::milliseconds kForLastWords(10'000);
/// A root says every two seconds whom it misses.
constexpr std::chrono::milliseconds kSilent(5000);

std::string describeRoot(const UniqueId& id) {
  std::string text;
  for (const Address& address : id.addresses) text += (text.empty() ? "" : ", ") + describe(address);
  return text.empty() ? "nowhere" : text;
}

}  // namespace

Dialer::Plan planFor(const UniqueId& root) {
  Dialer::Plan plan;
  plan.addresses = root.addresses;
  plan.purpose = Purpose::Root;
  plan.topic = root.hash;
  plan.secret = root.secret;
  plan.whom = root.isFixed ? "rank 0 at the address of NCCL_COMM_ID" : "the root of the unique id";
  return plan;
}

Uplink::Uplink(std::shared_ptr<Core> core, UniqueId id, std::weak_ptr<PartyPort> party, std::shared_ptr<Lease> lease)
    : core_(std::move(core)), id_(std::move(id)), toTell_{id_}, firstId_(id_.hash), party_(std::move(party)), lease_(std::move(lease)) {}

std::shared_ptr<Uplink> Uplink::start(const std::shared_ptr<Core>& core, const UniqueId& id, std::weak_ptr<PartyPort> party,
                                      std::shared_ptr<Lease> lease, const UniqueId* first) {
  auto self = std::make_shared<Uplink>(core, id, std::move(party), std::move(lease));
  if (first != nullptr) self->firstId_ = first->hash;
  if (first != nullptr && !core->findRoot(*first)) self->toTell_.push_back(*first);
  core->reactor.post([self] { self->dial(); });
  return self;
}

void Uplink::dial() {
  Dialer::Plan plan = planFor(id_);
  plan.table = &core_->dialled;
  {
    const std::lock_guard lock(core_->mutex);
    const Settings& settings = core_->settings();
    plan.retries = id_.isFixed ? settings.retries : std::min(settings.retries, kTriesOfMadeIds);
    plan.pause = std::chrono::milliseconds(settings.retrySleepMs);
  }
  dialer_ = Dialer::start(core_->reactor, std::move(plan),
                          [self = shared_from_this()](Result<std::shared_ptr<Link>> outcome) { self->onDialed(std::move(outcome)); });
}

/// The others hear of it before the program does, which may end then. Without the lock. What they are told.
Status Uplink::tellWithoutSocket(const Status& cause) {
  Status named;
  {
    const std::lock_guard lock(core_->mutex);
    named = core_->inOwnName(ranks_.empty() ? "the root of other ranks" : describeRanks(ranks_), cause);
    for (const auto& [kind, payload] : waiting_)
      if (kind == Kind::Trouble) named = decodeTrouble(payload);  // it had given up before
  }
  sayLastWords(toTell_, named);
  return named;
}

void Uplink::onDialed(Result<std::shared_ptr<Link>> outcome) {
  Status named;  // of this process alone
  if (!outcome && outcome.error().code() == Code::SystemError) named = tellWithoutSocket(outcome.error());
  const std::lock_guard lock(core_->mutex);
  if (!outcome) {
    if (isOver_) return finish();  // nobody is left to hear it
    const bool isFirstTold = toTell_.size() > 1;
    if (!named.ok())
      return trouble(ranks_.empty() ? named : outcome.error(), isFirstTold ? &PartyPort::onTrouble : &PartyPort::onUnreached);
    return trouble(error(outcome.error().code(), "{}. {}", outcome.error().text(),
                         id_.isFixed ? "Is NCCL_COMM_ID an address of rank 0's host, and TUTTI_JOB_SECRET the same everywhere?"
                                     : "The process that made the id is gone, the id has served, or a firewall is in between"),
                   &PartyPort::onUnreached);
  }
  link_ = std::move(*outcome);
  observe::info(observe::Subsys::Bootstrap, "Bootstrap: connected to {}", link_->peer());
  link_->start(
      [weak = weak_from_this(), core = core_](Kind kind, std::span<const std::byte> payload) {
        const std::lock_guard again(core->mutex);
        if (const auto self = weak.lock()) self->onFrame(kind, payload);
      },
      [weak = weak_from_this(), core = core_](const Status& cause) {
        const std::lock_guard again(core->mutex);
        if (const auto self = weak.lock()) self->onClosed(cause);
      });
  for (auto& [kind, payload] : std::exchange(waiting_, {})) link_->send(kind, std::move(payload));
  if (isOver_) finish();
}

/// Where the root is, and whose process it lives in.
std::string Uplink::describeHost() const {
  std::string who = describeRoot(id_);
  if (root_) {
    who += format(", process {} on {}", root_->pid, root_->hostName) + (root_->rank < 0 ? "" : format(", of rank {}", root_->rank));
  } else if (id_.pid > 0) {
    who += format(", process {}", id_.pid);
  }
  return who;
}

void Uplink::onClosed(const Status& cause) {
  trouble(error(Code::RemoteError, "the process of the unique id's root ({}) went away while the communicator was made: {}", describeHost(),
                cause.text()),
          &PartyPort::onLost);
}

void Uplink::onFrame(Kind kind, std::span<const std::byte> payload) {
  const auto party = party_.lock();
  if (isOver_ || !party) return;
  switch (kind) {
    case Kind::Welcome: root_ = decodeWelcome(payload); return;
    case Kind::Missing:
      missing_ = Reader(payload).text(kMostErrorBytes);
      heardAt_ = std::chrono::steady_clock::now();
      return party->onMissing(missing_);
    case Kind::Trouble:  // without a welcome: it was over before this came, and may not have known of a first root
      return trouble(decodeTrouble(payload), root_ ? &PartyPort::onTrouble : &PartyPort::onUnreached);
    case Kind::Table:
      if (const auto table = decodeTable(payload)) return party->onTable(*table);
      break;
    case Kind::Go: finish(); return party->onGo();
    default: break;
  }
  trouble(error(Code::InternalError, "the root of the unique id sent a message that makes no sense (kind {})", static_cast<int>(kind)));
}

void Uplink::say(Kind kind, std::vector<std::byte> payload) {
  if (isOver_) return;
  if (link_) return link_->send(kind, std::move(payload));
  waiting_.emplace_back(kind, std::move(payload));
}

Status Uplink::enroll(const Enroll& message) {
  ranks_.push_back(message.rank);
  say(Kind::Enroll, encode(message));
  return {};
}

Status Uplink::bring(const Part& message) {
  say(Kind::Part, encode(message));
  return {};
}

void Uplink::ready() { say(Kind::Ready, {}); }

void Uplink::giveUp(const Status& cause) {
  if (isOver_) return;
  say(Kind::Trouble, encode(cause));
  isOver_ = true;
  const auto count = core_->unsaidOf(firstId_);
  count->fetch_add(1, std::memory_order_relaxed);
  unsaid_ = {nullptr, [count](void*) { count->fetch_sub(1, std::memory_order_release); }};  // pairs with Job::hasUnsaid()
  if (link_) return finish();
  core_->reactor.post([self = shared_from_this()] {
    if (const auto dialer = self->dialer_.lock()) dialer->hurry();
  });
  // A root that is stopped would be dialled for a minute, with sockets and a thread that nobody wants any more.
  lastWords_ = Alarm(core_->reactor, kForLastWords, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    const std::lock_guard lock(self->core_->mutex);
    if (self->link_) return;
    if (const auto dialer = self->dialer_.lock()) dialer->cancel();
    self->finish();
  });
}

std::string Uplink::describe() const {
  if (!link_) return format("(the root at {} has not answered)", describeHost());
  if (missing_.empty()) return format("(registered at {}, which has not said yet whom it waits for)", describeHost());
  const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - heardAt_);
  return format("{} (said {} ms ago by the root at {}{})", missing_, age.count(), describeHost(),
                age < kSilent ? "" : ", which has been silent since: it may have stopped");
}

void Uplink::trouble(const Status& cause, void (PartyPort::*tell)(const Status&)) {
  if (isOver_) return;
  finish();
  if (const auto party = party_.lock()) (party.get()->*tell)(cause);
}

void Uplink::finish() {
  isOver_ = true;
  if (link_) link_->finish(std::exchange(unsaid_, nullptr));
  unsaid_.reset();
  lease_.reset();
}

}  // namespace tutti::bootstrap
