#include "exec/host/work.h"

#include <utility>

#include "core/format.h"
#include "exec/host/signature.h"
#include "observe/log.h"

namespace tutti::exec::host {

void Work::reset(uint64_t ticket) {
  for (size_t i = 0; i < used_; ++i) {
    chains_[i].calls.clear();
    chains_[i].next = 0;
    chains_[i].running = false;
  }
  used_ = 0;
  ticket_ = ticket;
  finished_ = false;
  moved_ = false;
  status_ = Status();
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
    return turn_->hub->latch(turn_->rank).tripped() ? giveUp() : Poll::Pending;
  }
  if (!turn_->hub->enter(turn_->rank)) return giveUp();

  bool allReady = true;
  Poll failed = Poll::Ready;
  for (size_t i = 0; i < used_; ++i) {
    Chain& chain = chains_[i];
    const Poll poll = advanceChain(chain);
    if (poll == Poll::Pending) allReady = false;
    if (poll == Poll::Failed) {
      failed = poll;
      break;
    }
  }
  turn_->hub->leave(turn_->rank);
  if (failed == Poll::Failed) return fail(std::move(status_));
  if (!allReady) return Poll::Pending;
  finished_ = true;
  markFinished();
  return Poll::Ready;
}

Poll Work::advanceChain(Chain& chain) {
  while (chain.next < chain.calls.size()) {
    const PlannedCall& call = chain.calls[chain.next];
    if (!chain.running) begin(chain);
    if (call.plan != nullptr) {
      const Poll poll = chain.operation.advance();
      moved_ = moved_ || chain.operation.moved();
      if (poll == Poll::Failed) status_ = chain.operation.status();
      if (poll != Poll::Ready) return poll;
    }
    if (call.plan == nullptr || hasRoot(call.plan->collective)) {
      // Data flows one way only, or not at all: a rank may be done without having heard of anybody. Of two that disagree, the later
      // one notices.
      std::atomic_thread_fence(std::memory_order_seq_cst);  // between the own post and the look at the others'
      status_ = compareWithPeers(call);
      if (!status_.ok()) return Poll::Failed;
    }
    chain.running = false;
    ++chain.next;
    moved_ = true;
    turn_->record(call.event, observe::FlightKind::Finished);
  }
  return Poll::Ready;
}

void Work::begin(Chain& chain) {
  const PlannedCall& call = chain.calls[chain.next];
  chain.running = true;
  chain.peerGone = false;
  if (call.event.collective != Collective::SendRecv) turn_->hub->board(turn_->rank).post(call.event.sequence, call.signature);
  if (call.plan != nullptr) chain.operation.start(call);
  turn_->record(call.event, observe::FlightKind::Started);
}

void Work::inspect() {
  if (finished_) return;
  for (size_t i = 0; i < used_; ++i) {
    Chain& chain = chains_[i];
    if (!chain.running) continue;
    Status status = compareWithPeers(chain.calls[chain.next]);
    if (status.ok()) status = lookForDeparted(chain);
    if (!status.ok()) {
      (void)fail(std::move(status));
      return;
    }
  }
}

void Work::warnOfWait(int64_t seconds) const {
  for (size_t i = 0; i < used_ && !finished_; ++i) {
    const Chain& chain = chains_[i];
    if (chain.running && chain.calls[chain.next].plan != nullptr)
      observe::warn("rank {} has waited for {} s in {}: it {}", turn_->rank.value, seconds,
                    describeSignature(chain.calls[chain.next].signature), chain.operation.describeWait());
  }
}

/// What the peers that have come as far say of this call of the communicator.
Status Work::compareWithPeers(const PlannedCall& call) const {
  if (call.event.collective == Collective::SendRecv) return {};
  for (int32_t r = 0; r < turn_->hub->ranks(); ++r) {
    const auto theirs = turn_->hub->board(Rank(r)).find(call.event.sequence);
    if (theirs && *theirs != call.signature) return mismatch(turn_->rank, call.signature, Rank(r), *theirs);
  }
  return {};
}

/// A collective waits in vain for a rank that ended before it. So does a message; but what its peer had sent before it ended may have
/// come in just now, so that only a later inspection is sure.
Status Work::lookForDeparted(Chain& chain) const {
  const PlannedCall& call = chain.calls[chain.next];
  const bool isMessage = call.event.collective == Collective::SendRecv;
  for (int32_t r = 0; r < turn_->hub->ranks(); ++r) {
    const auto calls = turn_->hub->departed(Rank(r));
    if (!calls || (isMessage ? call.event.peer != r : call.event.sequence < *calls)) continue;
    if (!isMessage || chain.peerGone)
      return error(Code::RemoteError, "rank {} has destroyed its communicator; rank {} waits for it in {}", r, turn_->rank.value,
                   describeSignature(call.signature));
    chain.peerGone = true;
  }
  return {};
}

/// The latch has tripped: says so, and what this rank was waiting for.
Poll Work::giveUp() {
  Status cause = turn_->hub->latch(turn_->rank).status();
  for (size_t i = 0; i < used_; ++i) {
    const Chain& chain = chains_[i];
    if (chain.running && chain.calls[chain.next].plan != nullptr)
      cause = std::move(cause).at(format("rank {} in {}: {}", turn_->rank.value, describeSignature(chain.calls[chain.next].signature),
                                         chain.operation.describeWait()));
  }
  return fail(std::move(cause));
}

Poll Work::fail(Status cause) {
  status_ = std::move(cause);
  finished_ = true;
  moved_ = true;
  turn_->hub->failAll(status_);
  turn_->hub->waitQuiet();
  for (size_t i = 0; i < used_; ++i) {
    Chain& chain = chains_[i];
    if (!chain.running) continue;
    observe::FlightEvent event = chain.calls[chain.next].event;
    event.code = static_cast<int32_t>(status_.code());
    turn_->record(event, observe::FlightKind::Failed);
  }
  markFinished();  // so that waiting for all work of the communicator ends; later works fail on the latch
  return Poll::Failed;
}

/// Never goes back: a failed work may be marked while an earlier one still runs to its end.
void Work::markFinished() {
  uint64_t done = turn_->finished.load(std::memory_order_relaxed);
  // release: pairs with the acquire in advance() and in Communicator::drain()
  while (done < ticket_ + 1 && !turn_->finished.compare_exchange_weak(done, ticket_ + 1, std::memory_order_release)) {
  }
}

}  // namespace tutti::exec::host
