// The calls of a group whose communicators are of GPUs.
#include <algorithm>
#include <utility>

#include "comm/group.h"
#include "comm/opening.h"
#include "comm/process.h"
#include "core/format.h"
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
  auto waiter = exec::host::Waiter::forSetUp();
  Poll poll = opening.advance();
  for (; poll == Poll::Pending; poll = opening.advance()) waiter.pause();
  return poll == Poll::Ready ? Status() : opening.status();
}

}  // namespace

Status Group::add(WindowRequest request) {
  TUTTI_TRY(admit(request.comm->isBlocking()));
  if (isOpen()) {
    content_.windows.push_back(std::move(request));
    return {};
  }
  std::vector<WindowRequest> alone;
  alone.push_back(std::move(request));
  return settle(std::move(alone));
}

/// Also on communicators that do not block: it is set-up, and takes no longer than the slowest rank.
Status Group::settle(std::vector<WindowRequest> windows) {
  for (WindowRequest& request : windows) {
    auto use = process().handles.useAgain(request.handle, request.comm);
    if (!use) return std::move(use).error();
    auto window = (*use)->beginWindow(request.base, request.bytes, request.isSymmetric);
    if (!window) return std::move(window).error();
    request.window = std::move(*window);
  }
  if (Status cause = waitForAll(windows); !cause.ok()) {
    // What one lacks the others would wait for in vain, each in a communicator of its own.
    for (const WindowRequest& request : windows)
      if (auto use = process().handles.useAgain(request.handle, request.comm)) (*use)->stop(cause);
    return cause;
  }
  Status first;
  for (const WindowRequest& request : windows) {
    const Status& refusal = request.window->refusal;
    *request.result = refusal.ok() ? request.window.get() : nullptr;
    if (first.ok()) first = refusal;
  }
  return first;
}

/// The first failure ends it.
Status Group::waitForAll(const std::vector<WindowRequest>& windows) {
  auto waiter = exec::host::Waiter::forSetUp();
  Patience patience(realClock());
  patience.begin();
  for (bool isPending = true; isPending;) {
    isPending = false;
    for (const WindowRequest& request : windows) {
      auto use = process().handles.useAgain(request.handle, request.comm);
      if (!use) return std::move(use).error();
      Status cause;
      Poll poll = (*use)->settleWindows(cause);
      if (poll == Poll::Pending) {
        cause = patience.look(format("rank {}", request.comm->rank().value), {request.comm->timeoutMs()}, [&] {
          return format("rank {} has not registered its window", request.comm->missingOnGpu().value);
        });
        if (!cause.ok()) poll = Poll::Failed;
      }
      if (poll == Poll::Failed) return cause;
      isPending = isPending || poll == Poll::Pending;
    }
    if (isPending) waiter.pause();
  }
  return {};
}

/// Calls of one communicator that blocks, all of which have what they need: what most groups are.
Status Group::launch(std::vector<DeviceCall>& calls, bool blocking) {
  const DeviceCall& front = calls.front();
  const auto isPlain = [&](const DeviceCall& call) { return call.handle == front.handle && call.plan != nullptr && call.isOpen(); };
  if (!blocking || !std::ranges::all_of(calls, isPlain)) return launchTogether(calls);
  const auto use = process().handles.useAgain(front.handle, front.comm);
  if (!use) return use.error();
  Communicator& comm = *front.comm;
  TUTTI_TRY(comm.chooseOnGpu(calls));
  if (!std::ranges::all_of(calls, isPlain)) return launchTogether(calls);  // some are captured, and lend their buffers
  TUTTI_TRY(comm.checkStreamsOnGpu(calls));
  TUTTI_TRY(comm.offerOnGpu(calls));
  return comm.launchOnGpu(calls);
}

Status Group::launchTogether(std::vector<DeviceCall>& calls) {
  std::vector<HandleTable::Use> uses;
  std::vector<Opening::Share> shares;
  for (DeviceCall& call : calls) {
    auto at = std::ranges::find(shares, call.handle, &Opening::Share::handle);
    if (at == shares.end()) {
      auto use = process().handles.useAgain(call.handle, call.comm);
      if (!use) return std::move(use).error();
      uses.push_back(std::move(*use));
      at = shares.insert(at, {call.handle, call.comm, {}});
    }
    at->calls.push_back(std::move(call));
  }
  for (Opening::Share& share : shares) {
    if (Status status = share.comm->pairSelfMessages(share.calls); !status.ok()) {
      forgo(calls, status);
      return status;
    }
    TUTTI_TRY(share.comm->chooseOnGpu(share.calls));
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
