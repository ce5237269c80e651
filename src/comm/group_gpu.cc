// The calls of a group whose communicators are of GPUs.
#include <algorithm>
#include <chrono>
#include <utility>

#include "comm/group.h"
#include "comm/process.h"
#include "config/params.h"
#include "core/format.h"
#include "exec/host/wait.h"
#include "observe/log.h"

namespace tutti::comm {
namespace {

/// The calls of one communicator.
struct DeviceShare {
  HandleTable::Use use;
  std::vector<DeviceCall> calls;
};

/// Says once whose memory is missing when that lasts.
class Patience {
 public:
  /// The error of a wait that has lasted too long.
  Status look(const Communicator& waits, Rank missing) {
    const auto waitedMs = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - since_).count();
    const int64_t limitMs = waits.timeoutMs();
    if (limitMs > 0 && waitedMs >= limitMs)
      return error(Code::RemoteError,
                   "rank {} has waited for {} ms, longer than its deadline allows, for rank {} to open a connection to it",
                   waits.rank().value, waitedMs, missing.value);
    const int64_t silenceMs = config::get<config::Param::TuttiWarnMs>();
    if (warned_ || silenceMs <= 0 || waitedMs < silenceMs) return {};
    warned_ = true;
    observe::warn("rank {} has waited for {} s for rank {} to open a connection to it: has it made the same call?", waits.rank().value,
                  waitedMs / 1000, missing.value);
    return {};
  }

 private:
  const std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  bool warned_ = false;
};

/// Every rank of this thread has offered its part before any is waited for.
Status openAll(std::vector<DeviceShare>& shares) {
  for (DeviceShare& share : shares) TUTTI_TRY(share.use->offerOnGpu(share.calls));
  constexpr int32_t kSpins = 20;  // whoever is missing may need this core
  exec::host::Waiter waiter(kSpins);
  Patience patience;
  for (bool pending = true; pending; waiter.pause()) {
    pending = false;
    for (DeviceShare& share : shares) {
      Status cause;
      const Poll poll = share.use->settleOnGpu(share.calls, cause);
      if (poll == Poll::Pending) cause = patience.look(*share.use, share.use->missingOnGpu());
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
      shares.push_back({process().handles.use(entry.handle), {}});
      if (!shares.back().use || &*shares.back().use != entry.call.comm)
        return error(Code::InvalidUsage, "a communicator was destroyed or aborted while its calls waited for ncclGroupEnd");
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
