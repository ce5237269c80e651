// The slow path of a work: what it does while it waits, to end waits that cannot end by themselves.
#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "core/format.h"
#include "exec/host/deadlock.h"
#include "exec/host/signature.h"
#include "exec/host/work.h"
#include "observe/log.h"

namespace tutti::exec::host {

using transport::local::ChainWait;
using transport::local::Ending;
using transport::local::RankWait;
using transport::local::Waits;

namespace {

/// Shorter waits are the peers' business only when they compare calls; this keeps the lock out of them.
constexpr Nanoseconds kBeforePublishing = std::chrono::milliseconds(1);

/// For those that have died.
constexpr Nanoseconds kBeforeLooking = std::chrono::milliseconds(10);
/// For other hosts, whom it costs messages.
constexpr Nanoseconds kBeforeTelling = std::chrono::milliseconds(20);
constexpr Nanoseconds kBetweenTelling = std::chrono::milliseconds(100);
/// Asking what is on its way takes system calls.
constexpr Nanoseconds kBetweenLooks = std::chrono::milliseconds(10);

int64_t millisecondsOf(Nanoseconds time) { return std::chrono::duration_cast<std::chrono::milliseconds>(time).count(); }

}  // namespace

void Work::inspect(Nanoseconds now) {
  if (finished_ || !turn_->checks) return;
  // A work that waits for its turn waits for one of its own rank, which is inspected where it runs.
  if (std::none_of(chains_.begin(), chains_.begin() + static_cast<std::ptrdiff_t>(used_), [](const Chain& c) { return c.running; })) return;
  if (!episode_.lasts) {
    episode_ = {};
    episode_.lasts = true;
    episode_.since = now;
  }
  episode_.latest = now;
  if (findFault(now)) (void)fail(std::move(outcome_));
}

bool Work::findFault(Nanoseconds now) {
  for (size_t i = 0; i < used_; ++i) {
    Chain& chain = chains_[i];
    if (!chain.running) continue;
    if (!compareWithPeers(chain.current().call) || !compareOwed() || lookForDeparted(chain)) return true;
  }
  const Nanoseconds waited = now - episode_.since;
  if (waited >= kBeforePublishing && lookForDeadlock(now)) return true;
  if (turn_->lookForDead != nullptr && waited >= kBeforeLooking) turn_->lookForDead(*turn_->hub);  // the latch says what was found
  if (remote() != nullptr && waited >= std::max<Nanoseconds>(kBeforeTelling, remote()->pause())) tellOtherHosts(now);
  if (waited >= turn_->silence && !episode_.warned) warnOfWait();
  return lookAtDeadline(now);
}

/// Compares a call with those of the peers that have come as far, and as many like it before it. False when one made another call:
/// outcome_ says so.
bool Work::compareWithPeers(const Call& call, uint64_t before) {
  if (call.isMessage()) return true;
  for (int32_t r = 0; r < turn_->hub->ranks(); ++r) {
    const transport::local::Board& board = turn_->hub->board(Rank(r));
    if (r == turn_->rank.value || board.hasNothingBut(call, call.sequence - before)) continue;
    Call own = call;
    for (own.sequence -= before; own.sequence <= call.sequence; ++own.sequence) {
      const auto theirs = board.find(own.sequence);
      if (!theirs || agree(*theirs, own)) continue;
      outcome_ = {Ending::Mismatch, mismatch(turn_->rank, own, Rank(r), *theirs), {{turn_->rank, own}, {Rank(r), *theirs}}};
      return false;
    }
  }
  return true;
}

/// Of two that disagree in a call whose data flows one way, the later one notices. But the line of a peer's board that has its latest calls
/// is one that it writes, so a call like the one before stays owed until there are some: whoever has gone over to another call looks at
/// once, and so does who waits, and who ends or divides the communicator.
/// `repeats`: isRepeated(), as it was when the call began.
bool Work::compareOneWay(const PlannedCall& planned, bool repeats) {
  turn_->oneWay = planned.call;
  ++turn_->owed;
  // Nothing holds ranks together that send each other nothing: their boards may soon be too far apart.
  const bool mayWait = repeats && planned.plan != nullptr && turn_->comparesLate;
  return (mayWait && turn_->owed < kMostOwed) || compareOwed();
}

bool Work::compareOwed() {
  if (turn_->owed == 0) return true;
  std::atomic_thread_fence(std::memory_order_seq_cst);  // between the own posts and the look at the others'
  return compareWithPeers(turn_->oneWay, std::exchange(turn_->owed, 0) - 1);
}

Status Work::settleOwed() {
  if (member_->latch.tripped() || compareOwed()) return {};
  (void)fail(std::move(outcome_));
  return status_;
}

/// A collective waits in vain for a rank that ended, or was finalized, before it. So does a message; but what its peer had sent before it
/// ended may have come in just now, so that only a later inspection is sure.
bool Work::lookForDeparted(Chain& chain) {
  const Call& call = chain.current().call;
  for (int32_t r = 0; r < turn_->hub->ranks(); ++r) {
    const auto calls = turn_->hub->lastCalls(Rank(r));
    if (!calls || (call.isMessage() ? call.root != r : call.sequence < *calls)) continue;
    if (member_->latch.tripped()) return false;  // it aborted before it departed, and the next try says so
    if (call.isMessage() && remote() != nullptr && remote()->owes(Rank(r))) continue;
    if (!call.isMessage() || chain.peerGone) {
      outcome_ = {Ending::Departed,
                  error(Code::RemoteError, "rank {} has {} its communicator; rank {} waits for it in {}", r,
                        turn_->hub->departed(Rank(r)) ? "destroyed" : "finalized", turn_->rank.value, describeCall(call)),
                  {}};
      return true;
    }
    chain.peerGone = true;
  }
  return false;
}

/// Publishes the wait, and asks whether all that are published can still end.
bool Work::lookForDeadlock(Nanoseconds now) {
  Waits& waits = turn_->hub->waits();
  // Part of what a lane lacks may come without its moving: it then waits for fewer ranks, which is another wait.
  // On another host, what this rank has sent can be late: whoever waits for it is not blocked for good.
  const bool wasSending = episode_.isSending;
  if (remote() != nullptr && (!episode_.published || now - episode_.looked >= kBetweenLooks)) {
    episode_.isSending = remote()->isSending(turn_->rank);
    episode_.looked = now;
  }
  if (!episode_.published || countUnmet() != episode_.unmet || episode_.isSending != wasSending) {
    const RankWait wait = standing();
    episode_.unmet = 0;
    for (const ChainWait& chain : wait.chains)
      for (const auto& lane : chain.lanes) episode_.unmet += lane.awaits.size();
    if (!waits.publish(turn_->rank, wait)) {  // the one before stays, and nobody confirms it
      episode_.unmet = std::numeric_limits<uint64_t>::max();
      return false;
    }
    episode_.published = true;
    episode_.number = 0;  // another wait
  }
  waits.confirm(turn_->rank);
  auto found = waits.look([&](Waits::State& state) { return findDeadlock(state, now.count()); });
  if (!found) return false;
  outcome_ = {Ending::Mismatch, std::move(found->cause), std::move(found->calls)};
  return true;
}

/// So that they can compare calls and find circles as this host does.
void Work::tellOtherHosts(Nanoseconds now) {
  if (episode_.number != 0 && now - episode_.told < std::max<Nanoseconds>(kBetweenTelling, remote()->pause())) return;
  if (episode_.number == 0) episode_.number = ++waitsTold_;
  episode_.told = now;
  const RankWait wait = standing();
  remote()->stands(turn_->rank, &wait, episode_.number);
}

/// For the verdicts of other hosts, which may have been made before they knew. No word that the wait is over follows.
void Work::tellWhereItEnded(const RankWait& own) {
  if (remote() == nullptr || !turn_->checks || own.chains.empty()) return;
  const Nanoseconds told = std::exchange(episode_.told, Nanoseconds(0));  // without memory for this, abandon() says nothing of it either
  if (!remote()->gaveUp(turn_->rank, own, ++waitsTold_)) episode_.told = told;
}

/// The same as the operation's words, and how the rank is reached that they name.
std::string Work::describeWait(const Chain& chain) const {
  std::string words = chain.operation.describeWait();
  const auto rank = chain.operation.awaited();
  if (!rank || turn_->hub->isHere(*rank)) return words;
  const auto way = turn_->hub->wayTo(*rank);
  return words + format(" (rank {} is on {}, over {})", rank->value, way.host, way.link);
}

bool Work::lookAtDeadline(Nanoseconds now) {
  const int64_t limit = turn_->timeoutNs.load(std::memory_order_relaxed);
  if (limit <= 0 || (now - episode_.since).count() < limit) return false;
  std::string where;
  for (size_t i = 0; i < used_; ++i)
    if (chains_[i].running && chains_[i].current().plan != nullptr)
      where += format("{}{}: it {}", where.empty() ? "" : "; ", describeCall(chains_[i].current().call), describeWait(chains_[i]));
  // A rank that this one waits for may itself wait for a process that has a lock, and be past its own deadline a moment later.
  if (const std::string stopped = turn_->hub->describeStopped(); !stopped.empty()) where += "; " + stopped;
  outcome_ = {Ending::Deadline,
              error(Code::RemoteError, "rank {} has waited {} ms, which is past the deadline of {} ms, in {}", turn_->rank.value,
                    waitedMs(), limit / 1'000'000, where),
              {}};
  return true;
}

/// One warning that names the call under way and whom it waits for.
void Work::warnOfWait() {
  episode_.warned = true;
  for (size_t i = 0; i < used_; ++i) {
    const Chain& chain = chains_[i];
    if (chain.running && chain.current().plan != nullptr)
      observe::warn("rank {} has waited for {} ms in {}: it {}", turn_->rank.value, waitedMs(), describeCall(chain.current().call),
                    describeWait(chain));
  }
}

/// The operation refused what came: says it with the exact calls, where they can be had.
void Work::explainFailure(const Chain& chain) {
  const PlannedCall& call = chain.current();
  if (!compareWithPeers(call.call)) return;
  outcome_ = {Ending::Mismatch, chain.operation.status(), {}};
  const auto foreign = chain.operation.foreignSignature();
  if (!foreign || !call.call.isMessage()) return;
  Call theirs = unpackSignature(*foreign);
  theirs.root = turn_->rank.value;
  theirs.sequence = call.call.sequence;
  const Rank peer(call.call.root);
  outcome_ = {Ending::Mismatch, mismatch(turn_->rank, call.call, peer, theirs), {{turn_->rank, call.call}, {peer, theirs}}};
}

/// Ends the work by what a step left in outcome_. One that failed for want of a peer's memory knows less than the latch will when it is
/// found that the peer has died: which rank that was, and what it did last. Not between enter() and leave(), for it may wait for that.
Poll Work::failStep() {
  constexpr std::chrono::milliseconds kMost(500);  // who was killed is known to be gone soon after its memory is
  const bool mayHaveDied = turn_->lookForDead != nullptr && outcome_.cause.code() == Code::RemoteError;
  const auto end = std::chrono::steady_clock::now() + kMost;
  while (mayHaveDied && !member_->latch.tripped() && std::chrono::steady_clock::now() < end) {
    turn_->lookForDead(*turn_->hub);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return mayHaveDied && member_->latch.tripped() ? giveUp() : fail(std::move(outcome_));
}

/// Where the unfinished chains stand.
RankWait Work::standing() const {
  RankWait wait;
  for (size_t i = 0; i < used_; ++i) {
    const Chain& chain = chains_[i];
    if (!chain.running) continue;
    ChainWait& stands = wait.chains.emplace_back();
    stands.call = chain.current().call;
    stands.following = chain.calls.size() - chain.next - 1;
    if (chain.current().plan != nullptr) chain.operation.describe(stands);
    for (auto& lane : stands.lanes) lane.mayMove = lane.mayMove || episode_.isSending;
  }
  if (wait.chains.empty()) return wait;  // not its turn: what the turn holds belongs to another work
  wait.begunCollectives = turn_->begunCollectives;
  wait.sent = turn_->sent;
  wait.received = turn_->received;
  return wait;
}

uint64_t Work::countUnmet() const {
  uint64_t unmet = 0;
  for (size_t i = 0; i < used_; ++i)
    if (chains_[i].running && chains_[i].current().plan != nullptr) unmet += chains_[i].operation.countUnmet();
  return unmet;
}

int64_t Work::waitedMs() const { return episode_.lasts ? millisecondsOf(episode_.latest - episode_.since) : 0; }

void Work::stopWatching() {
  if (episode_.published) turn_->hub->waits().withdraw(turn_->rank);
  if (episode_.told.count() != 0) remote()->stands(turn_->rank, nullptr, waitsTold_);
  episode_ = {};
}

}  // namespace tutti::exec::host
