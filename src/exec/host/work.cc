#include "exec/host/work.h"

#include <utility>

#include "core/format.h"

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
  if (turn_.finished.load(std::memory_order_acquire) != ticket_) {
    return turn_.hub->latch(turn_.rank).tripped() ? fail(turn_.hub->latch(turn_.rank).status()) : Poll::Pending;
  }
  if (!turn_.hub->enter(turn_.rank)) return fail(turn_.hub->latch(turn_.rank).status());

  bool allReady = true;
  Poll failed = Poll::Ready;
  for (size_t i = 0; i < used_; ++i) {
    Chain& chain = chains_[i];
    const Poll poll = advanceChain(chain);
    if (poll == Poll::Pending) allReady = false;
    if (poll == Poll::Failed) {
      failed = poll;
      status_ = chain.operation.status();
      break;
    }
  }
  turn_.hub->leave(turn_.rank);
  if (failed == Poll::Failed) return fail(std::move(status_));
  if (!allReady) return Poll::Pending;
  finished_ = true;
  turn_.finished.store(ticket_ + 1, std::memory_order_release);  // pairs with the acquire above
  return Poll::Ready;
}

Poll Work::advanceChain(Chain& chain) {
  while (chain.next < chain.calls.size()) {
    const PlannedCall& call = chain.calls[chain.next];
    if (!chain.running) {
      chain.operation.start(call);
      chain.running = true;
      turn_.record(call.event, observe::FlightKind::Started);
    }
    const Poll poll = chain.operation.advance();
    moved_ = moved_ || chain.operation.moved();
    if (poll != Poll::Ready) return poll;
    chain.running = false;
    ++chain.next;
    moved_ = true;
    turn_.record(call.event, observe::FlightKind::Finished);
  }
  return Poll::Ready;
}

Poll Work::fail(Status cause) {
  status_ = std::move(cause);
  finished_ = true;
  moved_ = true;
  turn_.hub->failAll(status_);
  turn_.hub->waitQuiet();
  // A failed work counts as finished, so that waiting for all work of the communicator ends; later works fail on the latch.
  uint64_t done = turn_.finished.load(std::memory_order_relaxed);
  while (done < ticket_ + 1 && !turn_.finished.compare_exchange_weak(done, ticket_ + 1, std::memory_order_release)) {
  }
  return Poll::Failed;
}

}  // namespace tutti::exec::host
