#include "exec/host/launch.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

namespace tutti::exec::host {

Status Launch::submit(std::vector<std::shared_ptr<Stream>> streams, bool callerRuns, std::mutex& order) {
  if (streams.empty()) return drive(works_, spins_);

  awaited_ = streams.size();
  streams_ = std::move(streams);
  if (Status status = queue(callerRuns, order); !status.ok()) return status;
  if (!callerRuns) return {};
  std::unique_lock lock(mutex_);
  // What the streams still have to do may wait for a communicator that somebody has aborted meanwhile: nothing tells this thread.
  constexpr std::chrono::milliseconds kLook{5};
  while (!changed_.wait_for(lock, kLook, [this] { return awaited_ == 0; }))
    if (isCondemned()) return cancel();
  return run(lock);
}

bool Launch::isCondemned() const {
  return std::any_of(works_.begin(), works_.end(), [](const auto& work) { return work->isCondemned(); });
}

/// Ends the launch before its streams have reached it. Works that share a launch share its fate.
Status Launch::cancel() {
  const Status cause = error(Code::RemoteError, "a communicator failed while its call waited for the streams of its group");
  for (const auto& work : works_) work->cancel(cause);
  for (const auto& stream : streams_) stream->fail(cause);
  finish();
  return cause;
}

/// Puts the launch on all its streams, or on none that would wait for it.
Status Launch::queue(bool callerRuns, std::mutex& order) {
  // Two launches that share two streams must queue in the same order on both, or each would wait for the other.
  const std::lock_guard ordered(order);
  try {
    const std::vector<std::shared_ptr<Stream>> targets = streams_;  // the launch may run, and let go of them, meanwhile
    for (const auto& stream : targets) stream->push([self = shared_from_this(), callerRuns] { self->reach(!callerRuns); });
  } catch (const std::bad_alloc&) {
    for (const auto& work : works_) work->abandon();
    const std::lock_guard lock(mutex_);
    finish();
    return error(Code::SystemError, "out of memory");
  }
  return {};
}

/// A stream has come to this launch: the last one runs it (if the caller does not), the others wait for its end.
void Launch::reach(bool mayRun) noexcept {
  std::unique_lock lock(mutex_);
  const bool last = --awaited_ == 0;
  changed_.notify_all();
  if (last && mayRun && !done_) {
    try {
      (void)run(lock);
    } catch (...) {  // no memory to say so with; the works have failed, and their ranks know
    }
  } else {
    changed_.wait(lock, [this] { return done_; });
  }
}

Status Launch::run(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  /// Whatever happens, the streams go on.
  struct Finish {
    Launch& launch;
    std::unique_lock<std::mutex>& lock;
    ~Finish() {
      lock.lock();
      launch.finish();
    }
  } const atEnd{*this, lock};
  return runWorks();
}

Status Launch::runWorks() {
  Status status = drive(works_, spins_);
  if (!status.ok())
    for (const auto& stream : streams_) stream->fail(status);
  return status;
}

void Launch::finish() {
  done_ = true;
  streams_.clear();
  changed_.notify_all();
}

}  // namespace tutti::exec::host
