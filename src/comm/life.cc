// The life of a communicator: its state, and the ways to end it.
#include <new>
#include <utility>

#include "comm/communicator.h"
#include "comm/opening.h"
#include "exec/host/verdict.h"
#include "exec/host/wait.h"
#include "observe/log.h"

namespace tutti::comm {

/// Ready when no set-up is under way any more.
Poll Communicator::advanceSetups() {
  if (!settingUp_.load(std::memory_order_acquire)) return Poll::Ready;  // pairs with the release below
  const std::lock_guard lock(setupMutex_);
  // One look at each, which decides both: it may end between two.
  const auto isOver = [this](const auto& part) {
    const Poll poll = part->advance();
    if (poll == Poll::Failed && poison(part->status()))  // no call waits that could be told in words
      observe::warn("rank {}: {}", rank_.value, part->status().text());
    return poll != Poll::Pending;
  };
  std::erase_if(setups_, isOver);
  std::erase_if(openings_, isOver);
  if (!setups_.empty() || !openings_.empty()) return Poll::Pending;
  settingUp_.store(false, std::memory_order_release);
  return Poll::Ready;
}

/// Something that nobody waits for is under way.
bool Communicator::isWorking() const {
  const uint64_t finished = turn_->finished.load(std::memory_order_acquire);  // pairs with the release of the last work
  return finished < busyUntil_.load(std::memory_order_relaxed) || (!isBlocking() && finalized_ && !isDrained());
}

void Communicator::sayWhy() {
  const ErrorLatch& latch = hub().latch(rank_);
  if (latch.tripped() && !revoked_ && !saysWhy_.exchange(true, std::memory_order_relaxed))
    observe::warn("rank {}: {}", rank_.value, latch.status().text());
}

Code Communicator::state() {
  if (const Code code = poison_.code(); code != Code::Ok) return code;
  const bool isSettled = advanceSetups() == Poll::Ready;
  if (const Code code = poison_.code(); code != Code::Ok) return code;
  if (!isSettled || !isOpen()) return Code::InProgress;
  if (turn_->lookForDead != nullptr && !hub().latch(rank_).tripped()) turn_->lookForDead(hub());
  if (gpu_ != nullptr && !hub().latch(rank_).tripped()) {
    if (Status status = compareOnGpu(); !status.ok()) stop(status);
  }
  lookAtGpu();
  if (const Code code = hub().latch(rank_).code(); code != Code::Ok && !revoked_) {
    sayWhy();
    hub().waitQuiet();  // who is told of an error may free the buffers of the work that it ended, which need not have a ticket
    return code;
  }
  if (isWorking() && !revoked_) return Code::InProgress;
  if (finalized_ && !isBlocking() && isDrained()) tellFinalized();  // in this order: another thread may finalize it just now
  return Code::Ok;
}

Status Communicator::checkReady() {
  if (!isOpen() || state() == Code::InProgress)
    return error(
        Code::InvalidArgument,
        "the communicator was used before its previous operation was complete: call ncclCommGetAsyncError until it reports ncclSuccess");
  return {};
}

Status Communicator::usable() {
  if (revoked_) return error(Code::InvalidUsage, "the communicator has been revoked: it can be split, shrunk, destroyed and aborted");
  if (!isBlocking() || !isOpen()) {
    if (poison_.tripped()) return poison_.status();
    TUTTI_TRY(checkReady());
  }
  lookAtGpu();
  const ErrorLatch& latch = hub().latch(rank_);
  if (latch.tripped()) return latch.status();
  if (finalized_)
    return error(Code::InvalidUsage, "the communicator has been finalized: only ncclCommDestroy and ncclCommAbort may follow");
  return {};
}

Status Communicator::dividable(bool stopsWork) {
  if (poison_.tripped()) return poison_.status();
  const bool onlyWorks = isOpen() && advanceSetups() == Poll::Ready;
  if (!stopsWork || !onlyWorks) TUTTI_TRY(checkReady());
  if (finalized_)
    return error(Code::InvalidUsage, "the communicator has been finalized: only ncclCommDestroy and ncclCommAbort may follow");
  const ErrorLatch& latch = hub().latch(rank_);
  return latch.tripped() && !revoked_ && !stopsWork ? latch.status() : Status();
}

Status Communicator::destroyable() {
  if (poison_.tripped()) return finalized_ ? Status() : poison_.status();  // what was refused after the end has changed nothing
  return isBlocking() && isOpen() && !settingUp_ ? Status() : checkReady();
}

bool Communicator::poison(const Status& cause) { return !isBlocking() && poison_.trip(cause); }

void Communicator::follow(std::shared_ptr<Setup> setup) {
  const std::lock_guard lock(setupMutex_);
  setups_.push_back(std::move(setup));
  settingUp_.store(true, std::memory_order_release);  // pairs with advanceSetups()
}

void Communicator::follow(std::shared_ptr<Opening> opening) {
  const std::lock_guard lock(setupMutex_);
  openings_.push_back(std::move(opening));
  settingUp_.store(true, std::memory_order_release);  // pairs with advanceSetups()
}

Status Communicator::finalize() {
  if (revoked_) return error(Code::InvalidArgument, "the communicator has been revoked: it can be split, shrunk, destroyed and aborted");
  if (!isBlocking() || !isOpen()) {
    if (poison_.tripped()) return poison_.status();
    TUTTI_TRY(checkReady());
  }
  if (finalized_.exchange(true)) return error(Code::InvalidArgument, "the communicator has been finalized already");
  if (!isBlocking()) return Status(Code::InProgress, "");
  const bool waits = !isDrained();
  drain();
  if (waits && hub().latch(rank_).tripped()) return hub().latch(rank_).status();  // nobody else may ask for what it waited for
  if (!isDrained()) return {};
  TUTTI_TRY(settleOwed());
  tellFinalized();
  return {};
}

/// Once.
void Communicator::tellFinalized() {
  if (!hub().latch(rank_).tripped() && !isFinalizedTold_.exchange(true)) hub().finalize(rank_, issuedCollectives_);
}

bool Communicator::isDrained() const {
  return turn_->finished.load(std::memory_order_acquire) >=
             issuedWorks_.load(std::memory_order_relaxed) &&  // pairs with the release of the last work
         (gpu_ == nullptr || gpu_->isIdle());
}

/// On a GPU each look is some calls of the driver, which other threads want too.
void Communicator::drain() {
  auto waiter = gpu_ != nullptr ? exec::host::Waiter::forSetUp() : exec::host::Waiter(turn_->isCrowded ? 0 : spins_);
  for (; !isDrained() && !hub().latch(rank_).tripped(); waiter.pause()) lookAtGpu();
  lookAtGpu();                                                          // a kernel that has given up may have been the last
  if (!isDrained() || hub().latch(rank_).tripped()) hub().waitQuiet();  // a call made again has no ticket
  waitForGpu();
}

void Communicator::close() {
  finalized_ = true;
  drain();
  if (isDrained()) (void)settleOwed();  // the others hear of it
}

void Communicator::depart() {
  if (isOpen()) hub().depart(rank_, issuedCollectives_);
}

void Communicator::stop(const Status& cause) {
  hub().failAll(cause);
  hub().waitQuiet();
  waitForGpu();
}

Status Communicator::forgo(Status cause) {
  if (!isLack(cause.code()) || hub().latch(rank_).tripped()) return cause;
  try {
    const Status told = error(Code::RemoteError, "rank {} cannot make its call: {}", rank_.value, cause.text());
    if (!hub().latch(rank_).trip(cause)) return cause;
    hub().blame(rank_);
    stop(told);
  } catch (const std::bad_alloc&) {  // without the words
    hub().failAll(Code::RemoteError);
  }
  return cause;
}

void Communicator::abort() {
  const Status cause = error(Code::RemoteError, "rank {} aborted its communicator", rank_.value);
  {
    const std::lock_guard lock(setupMutex_);
    for (const auto& setup : setups_) setup->giveUp(cause);
  }
  if (!isOpen()) return;
  shared_->failAll(cause);
  waitForGpu();
}

std::string Communicator::verdictJson() {
  lookAtGpu();
  const ErrorLatch& latch = hub().latch(rank_);
  std::string known = exec::host::verdictJson(hub());
  if (known != "null" || !latch.tripped() || revoked_) return known;
  exec::host::conclude(hub(), rank_, {transport::local::Ending::Aborted, latch.status(), {}}, {}, 0);
  return exec::host::verdictJson(hub());
}

Status Communicator::revoke() {
  TUTTI_TRY(isOpen() ? Status() : checkReady());
  if (revoked_.exchange(true)) return error(Code::InvalidArgument, "the communicator has been revoked already");
  stop(error(Code::RemoteError, "rank {} revoked its communicator", rank_.value));
  return {};
}

}  // namespace tutti::comm
