#include "progress/job.h"

#include <chrono>

namespace tutti::progress {

Status Job::status() const { return failure_.status(); }

void Job::fail(const Status& why) {
  const std::string address = peerText_.empty() ? "" : format(" at {}", peerText_);
  Status named = error(why.code(), "rank {} on {}{}: {}", peer_.rank.value, peer_.host.empty() ? "?" : peer_.host, address, why.text());
  (void)failure_.trip(named);
  broken_ = true;
}

void Job::failComm() { fail(comm()->status()); }

void Job::watch(Poller& poller, std::span<const int> descriptors) {
  for (const int descriptor : descriptors) {
    if (Status status = poller.add(descriptor, this); !status.ok()) return fail(status);
    watched_.push_back(descriptor);
    stirred = true;
  }
}

void Job::unwatch(Poller& poller) {
  for (const int descriptor : watched_) poller.remove(descriptor);
  watched_.clear();
}

void Job::stop(Poller& poller, JobState how, bool politely) {
  if (final()) return;
  unwatch(poller);
  if (politely && comm() != nullptr) comm()->takeLeave();
  disconnect();
  if (how == JobState::Failed) {
    failedNs_ = std::chrono::steady_clock::now().time_since_epoch().count();
    if (latch_ != nullptr) latch_->trip(failure_.status());
  }
  state_.store(how, std::memory_order_release);  // pairs with state(): whoever sees it knows that no buffer is touched any more
}

/// Whether the job has come to its end.
bool Job::settle(Poller& poller) {
  if (closing && idle()) {
    stop(poller, JobState::Closed, !broken_);  // a connection that breaks now is missed by nobody
  } else if (broken_) {
    stop(poller, JobState::Failed);
  } else if (peerLeft && receives() && idle()) {
    stop(poller, JobState::Ended);
  } else {
    return false;
  }
  return true;
}

/// Whether there is a connection now, or will never be one.
bool Job::setUp(Poller& poller) {
  if (closing && idle() && !reaches()) {
    if (receives()) (void)connect();  // a sender that has come already is told so
    stop(poller, JobState::Closed, true);
    return true;
  }
  if (nudged_.load(std::memory_order_acquire)) {  // pairs with nudge()
    nudged_.store(false, std::memory_order_relaxed);
    stirred = true;
  }
  if (!stirred) return false;
  stirred = false;
  const Poll poll = connect();
  if (poll == Poll::Failed) return settle(poller);
  if (poll == Poll::Pending) {
    if (watched_.empty()) watch(poller, setUpDescriptors());
    return settle(poller);
  }
  peerText_ = comm()->peerText();
  unwatch(poller);
  watch(poller, comm()->descriptors());
  blind_ = comm()->descriptors().empty();
  if (Status status = start(); !status.ok()) fail(status);
  state_.store(JobState::Running, std::memory_order_release);  // pairs with state()
  return true;
}

Advance Job::advance(Poller& poller) {
  if (final()) return {};
  Advance did;
  if (state() == JobState::SettingUp) {
    did.moved = setUp(poller);
    if (!did.moved || final()) return did;
  }
  if (!broken_) {
    const Advance more = move();
    did.moved = did.moved || more.moved;
    did.waits = more.waits;
  }
  did.moved = settle(poller) || did.moved;
  return did;
}

}  // namespace tutti::progress
