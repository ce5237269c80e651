#include "exec/host/launch.h"

#include <utility>

namespace tutti::exec::host {

Status Launch::submit(std::vector<std::shared_ptr<Stream>> streams, bool callerRuns) {
  if (streams.empty()) return drive(works_, spins_);

  awaited_ = streams.size();
  streams_ = std::move(streams);
  {
    // Two launches that share two streams must queue in the same order on both, or each would wait for the other.
    static std::mutex order;
    const std::lock_guard ordered(order);
    const std::vector<std::shared_ptr<Stream>> targets = streams_;  // the launch may run, and let go of them, meanwhile
    for (const auto& stream : targets)
      stream->push([self = shared_from_this(), callerRuns] { self->reach(!callerRuns); });
  }
  if (!callerRuns) return {};
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return awaited_ == 0; });
  return run(lock);
}

/// A stream has come to this launch: the last one runs it (if the caller does not), the others wait for its end.
void Launch::reach(bool mayRun) {
  std::unique_lock lock(mutex_);
  const bool last = --awaited_ == 0;
  changed_.notify_all();
  if (last && mayRun) {
    (void)run(lock);
  } else {
    changed_.wait(lock, [this] { return done_; });
  }
}

Status Launch::run(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  Status status = drive(works_, spins_);
  if (!status.ok())
    for (const auto& stream : streams_) stream->fail(status);
  lock.lock();
  done_ = true;
  streams_.clear();
  changed_.notify_all();
  return status;
}

}  // namespace tutti::exec::host
