#include "exec/host/work.h"

#include <sched.h>

#include <algorithm>
#include <span>
#include <utility>

#include "core/format.h"
#include "exec/host/signature.h"
#include "observe/log.h"

namespace tutti::exec::host {

using transport::local::Ending;
using transport::local::Member;

namespace {

/// Leaves the hub however advance() ends. Without a member there is nothing to leave.
class Inside {
 public:
  explicit Inside(Member* member) : member_(member), entered_(member == nullptr || member->enter()) {}
  ~Inside() {
    if (member_ != nullptr && entered_) member_->leave();
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  explicit operator bool() const { return entered_; }

 private:
  Member* member_;
  bool entered_;
};

}  // namespace

void Work::clear() {
  for (size_t i = 0; i < used_; ++i) {
    chains_[i].calls.clear();
    chains_[i].next = 0;
    chains_[i].running = false;
  }
  used_ = 0;
  finished_ = true;
}

void Work::start(uint64_t ticket) {
  ticket_ = ticket;
  finished_ = false;
  moved_ = false;
  status_ = Status();
}

bool Work::needsThisCore() {
  if (!turn_->isCrowded || finished_) return false;
  // Not its turn: it waits for another thread of its own rank.
  const auto used = std::span(chains_).first(used_);
  if (std::none_of(used.begin(), used.end(), [](const Chain& chain) { return chain.running; })) return true;
  const int32_t core = sched_getcpu() + 1;
  if (member_->core.load(std::memory_order_relaxed) != core) member_->core.store(core, std::memory_order_relaxed);
  const auto isOnThis = [&](Rank rank) { return turn_->hub->member(rank).core.load(std::memory_order_relaxed) == core; };
  bool needed = false;
  for (size_t i = 0; i < used_; ++i) {
    Chain& chain = chains_[i];
    if (!chain.running || chain.current().plan == nullptr) continue;
    const bool needsNone = chain.operation.needsNoneOf(isOnThis);
    chain.operation.setLooks(needsNone ? Operation::kLooks : 1);
    needed = needed || !needsNone;
  }
  return needed;
}

void Work::beginChain() {
  if (used_ == chains_.size()) chains_.emplace_back();
  ++used_;
}

Poll Work::advance() {
  moved_ = false;
  if (finished_) return status_.ok() ? Poll::Ready : Poll::Failed;
  // Pairs with the release below, of the work before this one.
  if (turn_->finished.load(std::memory_order_acquire) != ticket_) {
    return member_->latch.tripped() ? giveUp() : Poll::Pending;
  }
  Poll poll = Poll::Pending;
  {
    const Inside inside(turn_->checks ? member_ : nullptr);
    if (!inside) return giveUp();
    poll = advanceAll();
  }
  if (poll == Poll::Failed) return failStep();
  if (moved_ && episode_.lasts) [[unlikely]]
    stopWatching();
  if (poll == Poll::Pending) return poll;
  finished_ = true;
  markFinished();
  return Poll::Ready;
}

Poll Work::advanceAll() {
  bool allReady = true;
  for (size_t i = 0; i < used_; ++i) {
    const Poll poll = advanceChain(chains_[i]);
    if (poll == Poll::Failed) return poll;
    if (poll != Poll::Pending) continue;
    allReady = false;
    if (!chains_[i].isNoted) noteStart(chains_[i]);
  }
  return allReady ? Poll::Ready : Poll::Pending;
}

Poll Work::advanceChain(Chain& chain) {
  while (chain.next < chain.calls.size()) {
    const PlannedCall& call = chain.current();
    // Data flows one way only, or not at all: a rank may be done without having heard of anybody.
    const bool isOneWay = call.plan == nullptr || hasRoot(call.plan->collective);
    if (!chain.running) {
      chain.repeats = (isOneWay || turn_->owed > 0) && isRepeated(call.call);
      if (turn_->owed > 0 && !chain.repeats && !compareOwed()) return Poll::Failed;
      begin(chain);
    }
    if (call.plan != nullptr) {
      const Poll poll = chain.operation.advance();
      moved_ = moved_ || chain.operation.moved();
      if (poll == Poll::Failed) explainFailure(chain);
      if (poll != Poll::Ready) return poll;
    }
    if (turn_->checks && isOneWay && !compareOneWay(call, chain.repeats)) return Poll::Failed;
    chain.running = false;
    ++chain.next;
    moved_ = true;
    turn_->record(call.event, observe::FlightKind::Finished);
  }
  return Poll::Ready;
}

void Work::begin(Chain& chain) {
  PlannedCall& call = chain.current();
  chain.running = true;
  chain.isNoted = chain.peerGone = false;
  if (turn_->checks) announce(call);
  if (call.plan == nullptr) return;
  chain.operation.setLooks(turn_->isCrowded ? 1 : Operation::kLooks);
  chain.operation.start(call);
}

/// Says to the peers that the rank has come to the call.
void Work::announce(PlannedCall& call) {
  if (call.call.isMessage()) {
    call.call.sequence = turn_->numberMessage(call.call.root, call.call.receives);
    member_->lastMessage.post(call.call);
  } else {
    turn_->begunCollectives = call.call.sequence + 1;
    member_->board.post(call.call);
  }
}

/// Of a call that waits; the time is that of its first wait.
void Work::noteStart(Chain& chain) {
  if (!chain.running) return;
  chain.isNoted = true;
  turn_->record(chain.current().event, observe::FlightKind::Started);
}

/// The latch has tripped: says so, and what this rank was waiting for.
Poll Work::giveUp() {
  Status cause = member_->latch.status();
  for (size_t i = 0; i < used_; ++i) {
    const Chain& chain = chains_[i];
    if (chain.running && chain.current().plan != nullptr)
      cause = std::move(cause).at(
          format("rank {} in {}: {}", turn_->rank.value, describeCall(chain.current().call), chain.operation.describeWait()));
  }
  return fail({Ending::Aborted, std::move(cause), {}});
}

Poll Work::fail(Outcome outcome) {
  const transport::local::RankWait own = standing();
  const std::string others = conclude(*turn_->hub, turn_->rank, outcome, own, waitedMs());
  status_ = std::move(outcome.cause);
  // Whom this rank waits for may itself wait for somebody else.
  if (outcome.ending == Ending::Deadline && !others.empty()) status_ = error(status_.code(), "{}{}", status_.text(), others);
  moved_ = true;
  turn_->hub->failAll(status_);
  const bool areLeft = leaveBuffers();
  tellWhereItEnded(own);
  finished_ = true;  // only now: without memory for the words, abandon() has to do all of this
  for (size_t i = 0; i < used_; ++i) {
    Chain& chain = chains_[i];
    if (!chain.running) continue;
    observe::FlightEvent event = chain.current().event;
    event.code = static_cast<int32_t>(status_.code());
    turn_->record(event, observe::FlightKind::Failed);
  }
  stopWatching();
  markFinished();  // so that waiting for all work of the communicator ends; later works fail on the latch
  if (!areLeft)
    observe::warn("rank {}: a process that was stopped may write to the output of this call when it goes on: no memory to put in its place",
                  turn_->rank.value);
  return Poll::Failed;
}

/// Of a failed work: once it returns, no peer touches the caller's buffers any more. False: a process that has been stopped may, for there
/// was no memory to put in their place.
bool Work::leaveBuffers() noexcept {
  const auto used = std::span(chains_).first(used_);
  if (std::none_of(used.begin(), used.end(), [](const Chain& chain) { return chain.running; })) return true;  // nobody is near any
  if (turn_->hub->waitQuiet()) return true;
  bool areLeft = true;
  for (Chain& chain : used)
    if (chain.running && !chain.operation.takeBack()) areLeft = false;
  return areLeft;
}

void Work::cancel(Status cause) {
  if (!finished_) (void)fail({Ending::Aborted, std::move(cause), {}});
}

void Work::abandon() noexcept {
  if (finished_) return;
  finished_ = true;
  turn_->hub->failAll(Code::SystemError);
  (void)leaveBuffers();
  episode_.told = {};  // a word to others would take memory
  stopWatching();
  markFinished();
}

/// Never goes back: a failed work may be marked while an earlier one still runs to its end.
void Work::markFinished() noexcept {
  uint64_t done = turn_->finished.load(std::memory_order_relaxed);
  if (!turn_->isShared.load(std::memory_order_relaxed)) {  // no other thread finishes works; an exchange would wait for the stores above
    if (done <= ticket_) turn_->finished.store(ticket_ + 1, std::memory_order_release);
    return;
  }
  // release: pairs with the acquire in advance() and in Communicator::drain()
  while (done < ticket_ + 1 && !turn_->finished.compare_exchange_weak(done, ticket_ + 1, std::memory_order_release)) {
  }
}

}  // namespace tutti::exec::host
