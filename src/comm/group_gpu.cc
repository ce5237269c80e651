// The calls of a group whose communicators are of GPUs.
#include <algorithm>
#include <utility>

#include "comm/group.h"
#include "comm/patience.h"
#include "comm/process.h"
#include "core/format.h"
#include "exec/host/wait.h"

namespace tutti::comm {
namespace {

/// The calls of one communicator.
struct DeviceShare {
  HandleTable::Use use;
  std::vector<DeviceCall> calls;
};

/// Every rank of this thread has offered its part before any is waited for.
Status openAll(std::vector<DeviceShare>& shares) {
  for (DeviceShare& share : shares) TUTTI_TRY(share.use->offerOnGpu(share.calls));
  constexpr int32_t kSpins = 20;  // whoever is missing may need this core
  exec::host::Waiter waiter(kSpins);
  Patience patience(realClock());
  patience.begin();
  for (bool pending = true; pending; waiter.pause()) {
    pending = false;
    for (DeviceShare& share : shares) {
      Status cause;
      const Poll poll = share.use->settleOnGpu(share.calls, cause);
      if (poll == Poll::Pending)
        cause = patience.look(format("rank {}", share.use->rank().value), share.use->timeoutMs(), [&] {
          return format("rank {} has not opened its end of a connection to it: has it made the same call?",
                        share.use->missingOnGpu().value);
        });
      if (poll == Poll::Failed || !cause.ok()) return cause;
      pending = pending || poll == Poll::Pending;
    }
    if (!pending) break;
  }
  return {};
}

}  // namespace

Status Group::launch(std::vector<DeviceEntry> entries) {
  std::vector<DeviceShare> shares;
  std::vector<ncclComm*> handles;
  for (DeviceEntry& entry : entries) {
    const auto at = static_cast<size_t>(std::find(handles.begin(), handles.end(), entry.handle) - handles.begin());
    if (at == handles.size()) {
      handles.push_back(entry.handle);
      auto use = process().handles.useAgain(entry.handle, entry.call.comm);
      if (!use) return std::move(use).error();
      shares.push_back({std::move(*use), {}});
    }
    shares[at].calls.push_back(std::move(entry.call));
  }
  for (DeviceShare& share : shares) {
    TUTTI_TRY(share.use->pairSelfMessages(share.calls));
    TUTTI_TRY(share.use->checkStreamsOnGpu(share.calls));
  }
  Status status = openAll(shares);
  size_t launched = 0;
  for (; status.ok() && launched < shares.size(); ++launched) status = shares[launched].use->launchOnGpu(shares[launched].calls);
  if (status.ok()) return {};
  // The peers have been offered this thread's part, and wait for its launches.
  for (size_t i = launched; i < shares.size(); ++i) shares[i].use->stop(status);
  return status;
}

}  // namespace tutti::comm
