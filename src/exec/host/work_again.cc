// The call that a rank makes again: like its latest one, alone, on the calling thread. What is the same in both was looked at when it was
// made first, so that little is left: say so on the board, do the steps, leave an event. Whatever is out of the ordinary, a wait or a
// refusal among it, is handed to the general path in a state as if that had begun the call.
#include <utility>

#include "exec/host/signature.h"
#include "exec/host/work.h"

namespace tutti::exec::host {

bool Work::canRunAgain() {
  if (used_ != 1 || !finished_ || !status_.ok()) return false;
  const Chain& chain = chains_.front();
  if (chain.calls.size() != 1 || chain.next != 1 || !chain.operation.isBrief()) return false;
  PlannedCall& call = chains_.front().calls.front();
  isOneWay_ = hasRoot(call.call.collective);
  const bool agreesLater = isOneWay_ ? turn_->comparesLate : turn_->owed == 0;
  if (!agreesLater || call.call.isMessage() || call.factorSource != nullptr || remote() != nullptr) return false;
  endOfRun_ = member_->board.endOfLatest();
  call.event.kind = observe::FlightKind::Finished;
  return !turn_->checks || endOfRun_ != nullptr;
}

Poll Work::runAgain(const void* in, void* out, uint64_t sequence, uint64_t windowEpoch) {
  Turn& turn = *turn_;
  const bool checks = turn.checks;
  if (!checks && member_->latch.tripped()) return Poll::Failed;  // enter() does not look
  // Another post, of the making of a child, has ended the run.
  if (checks && (endOfRun_->load(std::memory_order_relaxed) != sequence || !member_->enter())) return Poll::Failed;
  Chain& chain = chains_.front();
  PlannedCall& call = chain.calls.front();
  if (checks) {
    endOfRun_->store(sequence + 1, std::memory_order_release);  // pairs with the acquires of readers: the call is posted
    turn.begunCollectives = sequence + 1;
  }
  call.event.sequence = sequence;
  call.signature = withSequence(call.signature, sequence);
  bool isInside = checks;
  const auto leave = [&] {
    if (std::exchange(isInside, false)) member_->leave();
  };
  try {
    const int32_t looks = turn.isCrowded ? 1 : Operation::kLooks;
    bool isThrough = chain.operation.runAgain(in, out, call.signature, windowEpoch, looks);
    if (isThrough && isOneWay_ && checks) {
      turn.oneWay.sequence = sequence;
      isThrough = ++turn.owed < kMostOwed || compareOwed();
    }
    if (isThrough) [[likely]] {
      turn.recorder.record(call.event);  // without `recording`: works of streams have ended, no other thread has news
      leave();
      return Poll::Ready;
    }
    goOn(in, out, sequence, windowEpoch);
    if (!chain.operation.status().ok()) explainFailure(chain);
    const bool hasFailed = !outcome_.cause.ok();
    if (!hasFailed) noteStart(chain);
    leave();
    if (hasFailed) (void)failStep();
  } catch (...) {
    leave();  // abandon() waits until nobody is inside
    if (finished_ && status_.ok()) goOn(in, out, sequence, windowEpoch);
    abandon();
    throw;
  }
  return Poll::Pending;
}

/// The call that runAgain() has begun becomes one of the general path.
void Work::goOn(const void* in, void* out, uint64_t sequence, uint64_t windowEpoch) {
  start(turn_->finished.load(std::memory_order_relaxed));
  Chain& chain = chains_.front();
  PlannedCall& call = chain.calls.front();
  call.in = in;
  call.out = out;
  call.call.sequence = sequence;
  call.windowEpoch = windowEpoch;
  chain.next = 0;
  chain.running = true;
  chain.repeats = isOneWay_;
  chain.isNoted = chain.peerGone = false;
  chain.operation.goOn();
}

void Work::giveBack() {
  if (used_ == 1) chains_.front().operation.giveBack();
}

}  // namespace tutti::exec::host
