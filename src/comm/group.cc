#include "comm/group.h"

#include <algorithm>
#include <map>
#include <utility>

#include "comm/process.h"
#include "observe/log.h"

namespace tutti::comm {
namespace {

using exec::host::Work;
using Streams = std::vector<std::shared_ptr<exec::host::Stream>>;

/// The calls of one communicator in a launch.
struct Share {
  HandleTable::Use use;
  std::vector<PendingCall> calls;
  Streams streams;            // distinct; null: complete on return
  bool inBackground = false;  // some calls had no stream, and nobody waits for them
};

/// Shares that have a stream in common, directly or through others: they run on one thread, or they would wait for each other.
struct Cluster {
  std::vector<std::unique_ptr<Work>> works;
  Streams streams;
  int32_t spins = 0;
};

bool intersects(const Streams& a, const Streams& b) {
  return std::any_of(a.begin(), a.end(), [&](const auto& s) { return std::find(b.begin(), b.end(), s) != b.end(); });
}

void addStreams(Streams& to, const Streams& from) {
  for (const auto& s : from)
    if (std::find(to.begin(), to.end(), s) == to.end()) to.push_back(s);
}

std::vector<Cluster> clusterByStreams(std::vector<Share>& shares) {
  std::vector<Cluster> clusters;
  for (Share& share : shares) {
    Cluster merged;
    merged.streams = share.streams;
    merged.spins = share.use->spins();
    for (size_t i = 0; i < clusters.size();) {
      if (!intersects(clusters[i].streams, merged.streams)) {
        ++i;
        continue;
      }
      addStreams(merged.streams, clusters[i].streams);
      std::move(clusters[i].works.begin(), clusters[i].works.end(), std::back_inserter(merged.works));
      merged.spins = std::min(merged.spins, clusters[i].spins);
      clusters.erase(clusters.begin() + static_cast<std::ptrdiff_t>(i));
    }
    merged.works.push_back(share.use->issue(share.calls));
    clusters.push_back(std::move(merged));
  }
  return clusters;
}

/// Those that run on streams are queued first; what runs on this thread comes last, all of it together.
Status submit(std::vector<Cluster> clusters) {
  std::stable_sort(clusters.begin(), clusters.end(), [](const Cluster& a, const Cluster& b) {
    const auto waits = [](const Cluster& c) { return std::find(c.streams.begin(), c.streams.end(), nullptr) != c.streams.end(); };
    return !waits(a) && waits(b);
  });
  Status first;
  for (Cluster& cluster : clusters) {
    const size_t streams = cluster.streams.size();
    std::erase(cluster.streams, nullptr);
    const bool callerRuns = cluster.streams.size() != streams;
    const auto launch = std::make_shared<exec::host::Launch>(std::move(cluster.works), cluster.spins);
    Status status = launch->submit(std::move(cluster.streams), callerRuns, process().launchOrder);
    if (first.ok()) first = std::move(status);
  }
  return first;
}

/// Also of calls that have been moved on to be launched: what names their communicators stays.
template <class Calls, class CommOf>
void forgoAll(const Calls& calls, const Status& cause, CommOf&& commOf) {
  if (!isLack(cause.code())) return;
  const Status told = error(cause.code(), "another call of the same group failed: {}", cause.text());
  for (const auto& call : calls)
    if (auto use = process().handles.useAgain(call.handle, commOf(call))) (void)(*use)->forgo(told);
}

}  // namespace

void Group::fail(const Status& status) {
  if (isOpen() && content_.error.ok()) content_.error = status;
}

Status Group::forgo(Communicator& comm, Status cause) {
  if (isOpen() && isLack(cause.code())) content_.isForgone = true;
  return comm.forgo(std::move(cause));
}

void Group::start() {
  ++depth_;
  loneVisitor = nullptr;  // the calls that follow are to be collected
}

void Group::leave() {
  if (--depth_ == 0) loneVisitor = thisThread().visitor;
}

Status Group::end() {
  if (depth_ == 0) return error(Code::InvalidUsage, "ncclGroupEnd without ncclGroupStart");
  leave();
  if (depth_ > 0) return {};
  // Taken out first: whatever happens below, the next group starts empty.
  Content content = std::exchange(content_, {});
  Status status = run(content);
  constexpr size_t kMostKept = 64;
  content.deviceCalls.clear();
  if (content.deviceCalls.capacity() <= kMostKept && content_.deviceCalls.capacity() == 0)
    content_.deviceCalls.swap(content.deviceCalls);  // groups of a few messages come again and again
  return status;
}

void Group::forgo(const std::vector<Entry>& calls, const Status& cause) {
  forgoAll(calls, cause, [](const Entry& entry) { return entry.call.comm; });
}

void Group::forgo(const std::vector<DeviceCall>& calls, const Status& cause) {
  forgoAll(calls, cause, [](const DeviceCall& call) { return call.comm; });
}

Status Group::run(Content& content) {
  const auto forgoCalls = [&content](Status cause) {
    forgo(content.calls, cause);
    forgo(content.deviceCalls, cause);
    return cause;
  };
  if (!content.error.ok()) {
    Status cause = undo(content.creations, content.error);
    return content.isForgone ? forgoCalls(std::move(cause)) : cause;
  }
  const bool blocking = content.blocking.value_or(true);
  const bool begins = !content.creations.empty() || !content.calls.empty() || !content.deviceCalls.empty();
  Status first;
  const auto keep = [&first](Status status) {
    if (first.ok() && status.code() != Code::InProgress) first = std::move(status);
    return first.ok();
  };
  if (!content.creations.empty() && !keep(create(std::move(content.creations), blocking))) return forgoCalls(first);
  if (!content.windows.empty() && !keep(settle(std::move(content.windows)))) return forgoCalls(first);
  if (!content.calls.empty() && !keep(launch(content.calls))) return first;
  if (!content.deviceCalls.empty() && !keep(launch(content.deviceCalls, blocking))) return first;
  bool ends = false;
  for (const auto& ending : content.endings) {
    Status status = ending();
    ends = ends || status.code() == Code::InProgress;
    (void)keep(std::move(status));
  }
  return first.ok() && ((begins && !blocking) || ends) ? Status(Code::InProgress, "") : first;
}

Status Group::simulate(std::optional<float>& estimatedUs) {
  if (depth_ == 1) content_.isForgone = false;  // nobody waits for its calls
  if (depth_ == 1 && content_.error.ok() && content_.blocking.value_or(true)) {
    leave();
    Content content = std::exchange(content_, {});
    if (!content.creations.empty()) (void)undo(content.creations, error(Code::InvalidUsage, "the group was not launched"));
    std::map<Communicator*, float> totals;  // calls of one communicator come one after the other, communicators run side by side
    bool isKnown = !content.calls.empty() || !content.deviceCalls.empty();
    for (DeviceCall& call : content.deviceCalls) {
      auto use = process().handles.useAgain(call.handle, call.comm);
      if (!use) return std::move(use).error();
      TUTTI_TRY((*use)->chooseOnGpu({&call, 1}));
      isKnown = isKnown && !call.call.isMessage();
      if (call.plan != nullptr) totals[call.comm] += static_cast<float>(call.estimatedUs);
    }
    for (const Entry& entry : content.calls) {
      auto use = process().handles.useAgain(entry.handle, entry.call.comm);
      if (!use) return std::move(use).error();
      isKnown = isKnown && entry.call.call.collective != Collective::SendRecv;
      if (!isKnown) break;
      const auto summary = (*use)->summarize(entry.call);
      if (!summary) return summary.error();
      totals[entry.call.comm] += static_cast<float>(summary->estimatedUs);
    }
    estimatedUs = -1.0F;
    for (const auto& [comm, total] : totals)
      if (isKnown) estimatedUs = std::max(*estimatedUs, total);
    return {};
  }
  return end();
}

Status Group::admit(bool blocking) {
  if (!isOpen()) return {};
  if (content_.blocking.value_or(blocking) != blocking)
    return error(Code::InvalidArgument, "blocking and non-blocking communicators in one group: use one group for each kind");
  content_.blocking = blocking;
  return {};
}

Status Group::add(ncclComm* handle, PendingCall call) {
  const bool blocking = call.comm->isBlocking();
  if (!isOpen() && blocking && call.stream == nullptr && call.planned.plan != nullptr) {
    noteLoneCall();
    return call.comm->runAlone(call);
  }
  TUTTI_TRY(admit(blocking));
  if (isOpen()) {
    content_.calls.push_back({handle, std::move(call)});
    return {};
  }
  Content alone;
  alone.blocking = blocking;
  alone.calls.push_back({handle, std::move(call)});
  return run(alone);
}

Status Group::add(ncclComm* handle, DeviceCall call) {
  const bool blocking = call.comm->isBlocking();
  if (!isOpen()) TUTTI_TRY(call.comm->chooseOnGpu({&call, 1}));
  if (!isOpen() && blocking && call.plan != nullptr && call.isOpen()) {
    TUTTI_TRY(call.comm->offerOnGpu(std::span(&call, 1)));
    return call.comm->launchOnGpu(std::span(&call, 1));
  }
  TUTTI_TRY(admit(blocking));
  call.handle = handle;
  if (isOpen()) {
    content_.deviceCalls.push_back(std::move(call));
    return {};
  }
  Content alone;
  alone.blocking = blocking;
  alone.deviceCalls.push_back(std::move(call));
  return run(alone);
}

Status Group::addEnding(std::function<Status()> ending) {
  if (!isOpen()) return ending();
  content_.endings.push_back(std::move(ending));
  return {};
}

Status Group::launch(std::vector<Entry>& entries) {
  std::vector<Share> shares;
  const auto gather = [&]() -> Result<std::vector<Cluster>> {
    std::vector<ncclComm*> handles;
    for (Entry& entry : entries) {
      const auto at = static_cast<size_t>(std::find(handles.begin(), handles.end(), entry.handle) - handles.begin());
      if (at == handles.size()) {
        handles.push_back(entry.handle);
        auto use = process().handles.useAgain(entry.handle, entry.call.comm);
        if (!use) return tl::unexpected(std::move(use).error());
        shares.push_back({std::move(*use), {}, {}, false});
      }
      if (entry.call.stream != nullptr && entry.call.stream->isStopped())
        return tl::unexpected(error(Code::InvalidUsage, "a stream was destroyed while calls on it waited for ncclGroupEnd"));
      Share& share = shares[at];
      if (entry.call.stream == nullptr && !share.use->isBlocking()) {
        auto worker = share.use->shared()->worker();
        if (!worker) return tl::unexpected(std::move(worker).error());
        entry.call.stream = std::move(*worker);
        share.inBackground = true;
      }
      addStreams(share.streams, {entry.call.stream});
      share.calls.push_back(std::move(entry.call));
    }
    for (Share& share : shares)
      if (Status status = share.use->pairSelfMessages(share.calls); !status.ok()) return tl::unexpected(std::move(status));
    return clusterByStreams(shares);
  };
  Result<std::vector<Cluster>> clusters = orOutOfMemory(gather);
  if (!clusters) {
    forgo(entries, clusters.error());
    return std::move(clusters).error();
  }
  for (Share& share : shares)
    if (share.inBackground) share.use->followWork();
  return submit(std::move(*clusters));
}

}  // namespace tutti::comm
