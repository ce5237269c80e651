#include "comm/distant.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "comm/distant_wire.h"
#include "comm/losses.h"
#include "comm/meeting.h"
#include "comm/news.h"
#include "core/format.h"
#include "exec/host/verdict.h"
#include "exec/host/work.h"
#include "transport/local/waits_wire.h"

namespace tutti::comm {

using transport::local::Hub;
using transport::local::Pipe;
using transport::local::PipeKey;
using transport::local::PipeView;

namespace {

std::array<char, 32> nameOf(const transport::net::Network& network) {
  std::array<char, 32> name{};
  network.name().copy(name.data(), name.size() - 1);
  return name;
}

/// Where a rank of this host stands. `wait`: in words; null: it waits for nothing.
Standing standingOf(Hub& hub, Rank rank, const transport::local::RankWait* wait, uint64_t episode, bool wantsAnswer) {
  Standing standing{rank, episode, wantsAnswer, wait != nullptr, {}, {}, false};
  const uint64_t begun = hub.board(rank).begun();
  for (uint64_t s = begun - std::min(begun, Standing::kMostCalls); s < begun; ++s)
    if (const auto call = hub.board(rank).find(s)) standing.calls.push_back(*call);
  if (wait != nullptr) standing.wait = *wait;
  return standing;
}

/// The verdict for another host, without where the ranks stand if that is much; empty when there is none.
std::string verdictFor(Hub& hub) {
  constexpr size_t kMostBytes = 64 << 10;
  return hub.waits().look([](const transport::local::Waits::State& state) -> std::string {
    if (!state.verdict) return {};
    std::string bytes = transport::local::encodeVerdict(*state.verdict);
    if (bytes.size() <= kMostBytes) return bytes;
    transport::local::Verdict brief = *state.verdict;
    for (auto& report : brief.ranks) report.wait.chains.clear();
    bytes = transport::local::encodeVerdict(brief);
    return bytes.size() <= kMostBytes ? bytes : std::string();
  });
}

Rank firstHere(const Hub& hub) {
  int32_t r = 0;
  while (r + 1 < hub.ranks() && !hub.isHere(Rank(r))) ++r;
  return Rank(r);
}

int32_t countHere(const Hub& hub) {
  int32_t here = 0;
  for (int32_t r = 0; r < hub.ranks(); ++r) here += hub.isHere(Rank(r)) ? 1 : 0;
  return here;
}

Circle circleOf(const bootstrap::Roster& roster, const Hub& hub, std::span<const int32_t> ranks) {
  std::vector<int32_t> processes;
  for (const int32_t r : ranks) processes.push_back(hub.processOf(Rank(r)));
  return Circle::of(roster, processes);
}

std::vector<int32_t> allRanks(const Hub& hub) {
  std::vector<int32_t> ranks(static_cast<size_t>(hub.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

Distant::Distant(std::shared_ptr<Courier> courier, const std::shared_ptr<Hub>& hub)
    : courier_(std::move(courier)),
      hub_(hub),
      shared_(*hub),
      id_(hub->id()),
      circle_(circleOf(courier_->roster(), *hub, allRanks(*hub))),
      ranksToDepart_(countHere(*hub)),
      ranksHere_(ranksToDepart_.load(std::memory_order_relaxed)),
      heard_(static_cast<size_t>(hub->ranks())),
      jobs_(courier_->engine(), &latch_) {}

Distant::~Distant() {
  courier_->dismiss(id_);  // unless it took its leave
  // What was sent and not yet taken by the network must still go: its receivers count on it.
  constexpr std::chrono::seconds kPatience(2);
  if (!isOver_.exchange(true)) (void)jobs_.close(kPatience);
}

progress::Peer Distant::peerOf(Rank rank) const {
  const auto& process = courier_->roster().process(shared_.processOf(rank));
  return {rank, courier_->roster().host(process.host).name};
}

int32_t Distant::hostOf(Rank rank) const { return courier_->roster().process(shared_.processOf(rank)).host; }

transport::local::Way Distant::wayTo(Rank rank) const {
  const std::string address = jobs_.addressOf(rank);
  std::string link(courier_->engine().network().name());
  if (address.empty()) {
    const auto& known = courier_->roster().process(shared_.processOf(rank)).addresses;
    link += format(" (none open here; bootstrap at {})", known.empty() ? "?" : bootstrap::describe(known.front()));
  } else if (address != link) {
    link += " " + address;
  }
  return {peerOf(rank).host, std::move(link)};
}

Status Distant::use(Usage usage) {
  const std::lock_guard lock(mutex_);
  if (usage_) return Status();
  TUTTI_TRY(jobs_.serve({usage.communicator, usage.trafficClass}));
  usage_ = std::move(usage);
  return Status();
}

Result<PipeView> Distant::sendHalf(const PipeKey& key, uint32_t slots, uint64_t slotBytes) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Half>& half = halves_[keyOf(key)];
  if (half != nullptr) return half->pipe.view();
  auto pipe = Pipe::create(slots, slotBytes);
  if (!pipe) return tl::unexpected(std::move(pipe).error());
  half = std::make_unique<Half>();
  half->pipe = std::move(*pipe);
  half->sender = jobs_.addSend({half->pipe.view(), peerOf(key.to), usage_ ? usage_->deviceOf(key, true) : 0});
  if (const auto known = handles_.find(keyOf(key)); known != handles_.end()) {
    half->sender->setHandle(known->second);
    handles_.erase(known);
  }
  return half->pipe.view();
}

Result<PipeView> Distant::receiveHalf(const PipeKey& key, uint32_t slots, uint64_t slotBytes) {
  auto half = makeReceiveHalf(key, slots, slotBytes);
  if (!half && half.error().code() == Code::SystemError) return tl::unexpected(failForLack(half.error()));
  return half;
}

Result<PipeView> Distant::makeReceiveHalf(const PipeKey& key, uint32_t slots, uint64_t slotBytes) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Half>& half = halves_[keyOf(key)];
  if (half != nullptr) return half->view();
  auto pipe = Pipe::create(slots, slotBytes);
  if (!pipe) return tl::unexpected(std::move(pipe).error());
  auto made = std::make_unique<Half>();
  made->pipe = std::move(*pipe);
  made->offers = std::vector<transport::local::Offer>(slots);
  PipeEnd end{keyOf(key), {}, nameOf(courier_->engine().network())};
  progress::RecvSpec spec;
  spec.pipe = made->view();
  spec.peer = peerOf(key.from);
  spec.device = usage_ ? usage_->deviceOf(key, false) : 0;
  spec.mostBytes = slotBytes;
  spec.heard = &heard_[static_cast<size_t>(key.from.value)];
  const auto job = jobs_.addReceive(spec, &end.handle);
  if (!job) return tl::unexpected(job.error());
  if (Status status = courier_->send(shared_.processOf(key.from), id_, News::PipeEnd, bytesOfValue(end)); !status.ok()) {
    // Its last word before it left says more than that it has left, and what is known of a death more than that a connection is gone.
    const ErrorLatch& known = shared_.latch(key.to);
    if (known.tripped()) return tl::unexpected(known.status());
    const bool isLost = shared_.arena()->losses().count(shared_.processOf(key.from)) > 0;
    return tl::unexpected(isLost ? lossOf(shared_, key.from) : std::move(status));
  }
  half = std::move(made);
  return half->view();
}

/// A connection broke. Why is often on its way by the mesh: the peer has failed, departed or died. So the words of the network come last.
void Distant::lookAtBreak() {
  constexpr std::chrono::milliseconds kForTheReason(450);  // longer than a survivor waits for those who know more (losses.cc)
  const int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  int64_t since = 0;
  if (brokenSince_.compare_exchange_strong(since, now, std::memory_order_relaxed)) return;
  if (now - since <= std::chrono::nanoseconds(kForTheReason).count()) return;
  if (const auto broken = breakOf()) {
    if (broken->status.code() == Code::SystemError) return (void)failForLack(broken->status);
    shared_.blame(broken->peer);
    return shared_.failAll(broken->status);
  }
  brokenSince_.store(now, std::memory_order_relaxed);
}

/// What this process lacks is not its peer's fault; everybody waits for it. What they are told.
Status Distant::failForLack(const Status& cause) {
  const Rank own = firstHere(shared_);
  Status told = error(Code::SystemError, "rank {} on {} lacks what a connection takes: {}", own.value, peerOf(own).host, cause.text());
  shared_.blame(own);
  shared_.failAll(told);
  return told;
}

/// Of a connection that is still wanted. Networks of plugins cannot tell a peer that has left from one that broke.
std::optional<progress::JobGroup::Failure> Distant::breakOf() {
  if (!latch_.tripped()) return std::nullopt;
  for (auto& failure : jobs_.failures())
    if (!shared_.departed(failure.peer) || owes(failure.peer)) return std::move(failure);
  return std::nullopt;
}

bool Distant::progress() {
  if (latch_.tripped() && !isOver_.load(std::memory_order_relaxed)) [[unlikely]]
    lookAtBreak();
  return courier_->engine().progress();
}

void Distant::wait(std::chrono::nanoseconds most) { (void)courier_->engine().progressOrWait(most); }

void Distant::leave() {
  (void)courier_->engine().progress();
  if (!isDelivered()) courier_->engine().kick();
}

void Distant::stands(Rank rank, const transport::local::RankWait* wait, uint64_t episode) {
  courier_->sendToHosts(id_, circle_, News::Standing, encodeStanding(standingOf(shared_, rank, wait, episode, wait != nullptr)));
}

bool Distant::gaveUp(Rank rank, const transport::local::RankWait& wait, uint64_t episode) {
  if (courier_->roster().processes.size() > Spread::kMostDirect) return false;
  sayLastStanding(standingOf(shared_, rank, &wait, episode, false));
  return true;
}

void Distant::haveCome() {
  if (courier_->roster().processes.size() > Spread::kMostDirect) return;
  for (int32_t r = 0; r < shared_.ranks(); ++r)
    if (shared_.isOnHost(Rank(r)) && !shared_.isBlamed(Rank(r))) sayLastStanding(standingOf(shared_, Rank(r), nullptr, 0, false));
}

/// Nobody who has died needs to pass it on.
void Distant::sayLastStanding(Standing&& standing) {
  std::vector<int32_t> others = allRanks(shared_);
  std::erase_if(others, [&](int32_t r) { return shared_.isBlamed(Rank(r)) && !shared_.isHere(Rank(r)); });
  standing.hasGivenUp = true;
  courier_->sendToHosts(id_, circleOf(courier_->roster(), shared_, others), News::Standing, encodeStanding(standing));
}

/// Somebody waits: a verdict, and the comparison of calls, need to know how far the ranks here have come.
void Distant::sayWhereAllStand(Hub& hub) {
  constexpr std::chrono::nanoseconds kLeast = std::chrono::milliseconds(50);
  const auto now = std::chrono::steady_clock::now();
  if (now - lastAnswer_ < std::max(kLeast, pause())) return;
  lastAnswer_ = now;
  for (int32_t r = 0; r < hub.ranks(); ++r)
    if (hub.isOnHost(Rank(r)))
      courier_->sendToHosts(id_, circle_, News::Standing, encodeStanding(standingOf(hub, Rank(r), nullptr, 0, false)));
}

/// Of calls that are known nothing is news; and messages overtake each other, being made by several threads: an older one must not
/// take back what a later one said (board.h, rule 3).
void Distant::hearStanding(Hub& hub, std::span<const std::byte> body) {
  const auto standing = decodeStanding(body, hub.ranks());
  if (!standing || hub.isOnHost(standing->rank)) return;
  const Rank rank = standing->rank;
  uint64_t known = hub.board(rank).begun();
  for (const Call& call : standing->calls) {
    if (call.sequence < known) continue;
    hub.board(rank).post(call);
    known = call.sequence + 1;
  }
  uint64_t& published = episodes_[rank.value];
  if (standing->waits && !hub.departed(rank)) {
    const bool isThere = !standing->wait || published == standing->episode || hub.waits().publish(rank, *standing->wait);
    if (standing->wait && isThere) hub.waits().confirm(rank);
    if (isThere) published = standing->episode;  // otherwise when it is said again
  } else if (!standing->wantsAnswer && standing->episode != 0) {
    hub.waits().withdraw(rank);
    published = 0;
  }
  if (standing->hasGivenUp) exec::host::addReport(hub, rank, standing->wait ? &*standing->wait : nullptr);
  if (standing->wantsAnswer) sayWhereAllStand(hub);
}

/// Each rank may have something to say, and every host hears it.
std::chrono::nanoseconds Distant::pause() const {
  constexpr std::chrono::nanoseconds kForEachRank = std::chrono::microseconds(250);
  return kForEachRank * shared_.ranks();
}

void Distant::failed(const Status& cause) {
  isFailureTold_.store(true, std::memory_order_relaxed);
  std::vector<int32_t> blamed;
  for (int32_t r = 0; r < shared_.ranks() && blamed.size() < Failure::kMostBlamed; ++r)
    if (shared_.isBlamed(Rank(r))) blamed.push_back(r);
  courier_->sendToHosts(id_, circle_, News::Failed, encodeFailure(cause, blamed, verdictFor(shared_)), Spread::Way::Direct);
}

/// A rank that ends because the communicator has failed may be heard of before whoever noticed the failure: it says why it goes.
void Distant::departed(Rank rank, uint64_t calls) {
  const bool isLast = ranksToDepart_.fetch_sub(1, std::memory_order_relaxed) == 1;
  if (!shared_.latch(rank).tripped()) {
    tellCounts(rank);
  } else if (!isFailureTold_.load(std::memory_order_relaxed)) {
    failed(shared_.latch(rank).status());
  }
  courier_->sendToHosts(id_, circle_, News::Departed, encodeDeparture({rank, calls}), isLast ? Spread::Way::Last : Spread::Way::Along);
  if (ranksHere_.fetch_sub(1, std::memory_order_relaxed) == 1) takeLeave();
}

void Distant::finalized(Rank rank, uint64_t calls) {
  tellCounts(rank);
  courier_->sendToHosts(id_, circle_, News::Finalized, encodeDeparture({rank, calls}), Spread::Way::Along);
}

/// Both ways where they differ: whoever is to be left out may have stopped, and be the one that hears for its host; and nothing may
/// overtake this, such as that the rank which says it has departed.
void Distant::tell(std::span<const std::byte> message, std::span<const int32_t> members, bool toAll) {
  const auto way = toAll ? Spread::Way::Direct : Spread::Way::Along;
  courier_->sendToHosts(id_, circle_, News::Meeting, message, way);
  if (members.empty()) return;
  const Circle circle = circleOf(courier_->roster(), shared_, members);
  if (circle != circle_) courier_->sendToHosts(id_, circle, News::Meeting, message, way);
}

void Distant::adopt(const std::shared_ptr<Hub>& child) { courier_->introduce(child); }

void Distant::quiet() {
  isOver_.store(true, std::memory_order_relaxed);
  jobs_.abort();
}

bool Distant::hear(News news, std::span<const std::byte> body) {
  const std::lock_guard lock(hearing_);
  const auto hub = isDeaf_ ? nullptr : hub_.lock();
  if (hub == nullptr) return false;
  switch (news) {
    case News::PipeEnd: hearPipeEnd(body); break;
    case News::PipeCount: hearPipeCount(body); break;
    case News::Failed: hearFailure(body); break;
    case News::Departed:
      if (const auto departure = decodeDeparture(body, hub->ranks()); departure && !hub->isOnHost(departure->rank))
        hub->depart(departure->rank, departure->calls, false);
      break;
    case News::Finalized:
      if (const auto end = decodeDeparture(body, hub->ranks()); end && !hub->isOnHost(end->rank))
        hub->finalize(end->rank, end->calls, false);
      break;
    case News::Meeting: Meeting::hear(hub, body); break;
    case News::Standing: hearStanding(*hub, body); break;
    case News::Spread: break;  // the courier's
  }
  return true;
}

bool Distant::isBetween(int32_t here, int32_t there) const {
  const int32_t ranks = shared_.ranks();
  return here >= 0 && here < ranks && shared_.isHere(Rank(here)) && there >= 0 && there < ranks && !shared_.isOnHost(Rank(there));
}

void Distant::hearPipeEnd(std::span<const std::byte> body) {
  PipeEnd end{};
  if (!readValue(body, end) || !isBetween(end.key[2], end.key[3])) return;
  if (const auto own = nameOf(courier_->engine().network()); end.network != own) {
    end.network.back() = 0;
    return shared_.failAll(error(Code::InvalidUsage,
                                 "rank {} uses network {}, rank {} network {}: NCCL_NET, NCCL_NET_PLUGIN and netName "
                                 "must lead to the same one on all hosts",
                                 end.key[3], end.network.data(), end.key[2], own.data()));
  }
  {
    const std::lock_guard lock(mutex_);
    const auto found = halves_.find(end.key);
    const bool isThere = found != halves_.end() && found->second != nullptr;
    if (departedHere_.count(end.key[2]) != 0) tellCount(end.key, isThere ? countMessages(found->second->pipe.view()) : 0);
    if (!isThere) {
      handles_[end.key] = end.handle;
      return;
    }
    if (found->second->sender == nullptr) return;
    if (found->second->sender->hasHandle()) return;  // once
    found->second->sender->setHandle(end.handle);
  }
  courier_->engine().kick();
}

void Distant::hearFailure(std::span<const std::byte> body) {
  auto failure = decodeFailure(body, shared_.ranks());
  if (!failure) return;
  for (const int32_t r : failure->blamed) shared_.blame(Rank(r));
  if (failure->verdict) {
    exec::host::adoptVerdict(shared_, std::move(*failure->verdict));  // before the ranks here add where they stood
  }
  isFailureTold_.store(true, std::memory_order_relaxed);
  const Code code = failure->cause.code();
  const bool isTheirs = code == Code::SystemError || code == Code::UnhandledCudaError;  // nothing of this system's
  shared_.failAll(isTheirs ? Status(Code::RemoteError, failure->cause.text()) : failure->cause, false);
}

}  // namespace tutti::comm
