// The calls of a group whose communicators are of GPUs.
#include <algorithm>
#include <utility>

#include "comm/group.h"
#include "comm/opening.h"
#include "comm/process.h"
#include "exec/host/wait.h"

namespace tutti::comm {
namespace {

/// A call that is captured has to be launched before the capture ends, which nobody here can see coming.
Result<bool> isCaptured(const std::vector<Opening::Share>& shares) {
  for (const Opening::Share& share : shares) {
    const auto captured = share.comm->isCapturedOnGpu(share.calls);
    if (!captured || *captured) return captured;
  }
  return false;
}

Status await(Opening& opening) {
  constexpr int32_t kSpins = 20;  // whoever is missing may need this core
  exec::host::Waiter waiter(kSpins);
  Poll poll = opening.advance();
  for (; poll == Poll::Pending; poll = opening.advance()) waiter.pause();
  return poll == Poll::Ready ? Status() : opening.status();
}

}  // namespace

Status Group::launch(std::vector<DeviceEntry> entries) {
  std::vector<HandleTable::Use> uses;
  std::vector<Opening::Share> shares;
  for (DeviceEntry& entry : entries) {
    auto at = std::ranges::find(shares, entry.handle, &Opening::Share::handle);
    if (at == shares.end()) {
      auto use = process().handles.useAgain(entry.handle, entry.call.comm);
      if (!use) return std::move(use).error();
      uses.push_back(std::move(*use));
      at = shares.insert(at, {entry.handle, entry.call.comm, {}});
    }
    at->calls.push_back(std::move(entry.call));
  }
  for (Opening::Share& share : shares) {
    TUTTI_TRY(share.comm->pairSelfMessages(share.calls));
    TUTTI_TRY(share.comm->checkStreamsOnGpu(share.calls));
  }
  const auto waits = uses.front()->isBlocking() ? true : isCaptured(shares);
  if (!waits) return waits.error();
  if (*waits) {
    Opening opening(std::move(shares));
    TUTTI_TRY(opening.offer());
    return await(opening);
  }
  const auto opening = std::make_shared<Opening>(std::move(shares));
  TUTTI_TRY(opening->offer());
  const Poll poll = opening->advance();
  if (poll == Poll::Failed) return opening->status();
  if (poll == Poll::Pending)
    for (const HandleTable::Use& use : uses) use->follow(opening);
  return {};
}

}  // namespace tutti::comm
