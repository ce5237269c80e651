#include "comm/opening.h"

#include <utility>

#include "comm/communicator.h"
#include "comm/process.h"
#include "core/format.h"

namespace tutti::comm {

Opening::Opening(std::vector<Share> shares) : shares_(std::move(shares)), patience_(realClock()) { patience_.begin(); }

Status Opening::offer() {
  for (Share& share : shares_) {
    Status status = share.comm->offerOnGpu(share.calls);
    if (status.ok()) continue;
    for (Share& other : shares_) other.comm->stop(status);  // their peers may have been offered a part, and wait for launches
    return status;
  }
  return {};
}

Poll Opening::settleAll(const Uses& uses, Status& cause) {
  Poll all = Poll::Ready;
  for (size_t i = 0; i < uses.size(); ++i) {
    Poll poll = uses[i]->settleOnGpu(shares_[i].calls, cause);
    if (poll == Poll::Pending) {
      cause = patience_.look(format("rank {}", uses[i]->rank().value), {uses[i]->timeoutMs()}, [&] {
        return format("rank {} has not opened its end of a connection to it: has it made the same call?", uses[i]->missingOnGpu().value);
      });
      if (!cause.ok()) poll = Poll::Failed;
    }
    if (poll == Poll::Failed) return poll;
    if (poll == Poll::Pending) all = poll;
  }
  return all;
}

Poll Opening::conclude(const Uses& uses, size_t launched, Status cause) {
  isOver_ = true;
  status_ = std::move(cause);
  if (status_.ok()) return Poll::Ready;
  for (size_t i = launched; i < uses.size(); ++i) uses[i]->stop(status_);
  return Poll::Failed;
}

Poll Opening::advance() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return Poll::Pending;
  if (isOver_) return status_.ok() ? Poll::Ready : Poll::Failed;
  Uses uses;
  Status ended;
  for (const Share& share : shares_) {
    auto use = process().handles.useAgain(share.handle, share.comm);
    if (use) uses.push_back(std::move(*use));
    if (!use && ended.ok()) ended = std::move(use).error();
  }
  if (!ended.ok()) return conclude(uses, 0, std::move(ended));
  Status cause;
  const Poll poll = settleAll(uses, cause);
  if (poll == Poll::Pending) return poll;
  if (poll == Poll::Failed) return conclude(uses, 0, std::move(cause));
  for (size_t i = 0; i < uses.size(); ++i) {
    Status launched = uses[i]->launchOnGpu(shares_[i].calls);
    if (!launched.ok()) return conclude(uses, i, std::move(launched));
  }
  return conclude(uses, uses.size(), {});
}

}  // namespace tutti::comm
