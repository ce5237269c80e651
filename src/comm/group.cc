#include "comm/group.h"

#include <algorithm>
#include <limits>
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
  ncclComm* handle;
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

/// Whether all of it runs on the calling thread, nothing of it on a stream, and none is larger than what is kept.
bool runsHere(const std::vector<Share>& shares) {
  return std::all_of(shares.begin(), shares.end(), [](const Share& share) {
    return share.streams.size() == 1 && share.streams.front() == nullptr && share.calls.size() <= Communicator::kMostKept;
  });
}

/// For drive().
std::vector<Work*> issueHere(std::vector<Share>& shares) {
  std::vector<Work*> works;
  works.reserve(shares.size());
  try {
    for (Share& share : shares) works.push_back(&share.use->issueHere(share.calls));
  } catch (...) {
    for (Work* const work : works) work->abandon();
    throw;
  }
  return works;
}

int32_t spinsOf(const std::vector<Share>& shares) {
  int32_t spins = std::numeric_limits<int32_t>::max();
  for (const Share& share : shares) spins = std::min(spins, share.use->spins());
  return spins;
}

/// Moves the calls to the shares of their communicators.
Status divide(std::vector<PendingCall>& calls, std::vector<Share>& shares) {
  for (PendingCall& call : calls) {
    auto at = std::find_if(shares.begin(), shares.end(), [&call](const Share& share) { return share.handle == call.handle; });
    if (at == shares.end()) {
      auto use = process().handles.useAgain(call.handle, call.comm);
      if (!use) return std::move(use).error();
      shares.push_back({call.handle, std::move(*use), {}, {}, false});
      at = shares.end() - 1;
    }
    if (call.stream != nullptr && call.stream->isStopped())
      return error(Code::InvalidUsage, "a stream was destroyed while calls on it waited for ncclGroupEnd");
    if (call.stream == nullptr && !at->use->isBlocking()) {
      auto worker = at->use->shared()->worker();
      if (!worker) return std::move(worker).error();
      call.stream = std::move(*worker);
      at->inBackground = true;
    }
    addStreams(at->streams, {call.stream});
    at->calls.push_back(std::move(call));
  }
  for (Share& share : shares) TUTTI_TRY(share.use->pairSelfMessages(share.calls));
  return {};
}

/// Whether one communicator has all calls, and runs them on the calling thread.
bool isOfOneHere(const std::vector<PendingCall>& calls) {
  const ncclComm* const handle = calls.front().handle;
  return std::all_of(calls.begin(), calls.end(), [handle](const PendingCall& c) { return c.handle == handle && c.stream == nullptr; });
}

/// Also of calls that have been moved on to be launched: what names their communicators stays.
template <class Calls>
void forgoAll(const Calls& calls, const Status& cause) {
  if (!isLack(cause.code())) return;
  const Status told = error(cause.code(), "another call of the same group failed: {}", cause.text());
  for (const auto& call : calls)
    if (auto use = process().handles.useAgain(call.handle, call.comm)) (void)(*use)->forgo(told);
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
  threadWords.lone = nullptr;  // the calls that follow are to be collected
  threadWords.group = thisThread().visitor;
}

void Group::leave() {
  if (--depth_ > 0) return;
  threadWords.group = nullptr;
  threadWords.lone = thisThread().visitor;
}

Status Group::end() {
  if (depth_ == 0) return error(Code::InvalidUsage, "ncclGroupEnd without ncclGroupStart");
  leave();
  if (depth_ > 0) return {};
  // Taken out first: whatever happens below, the next group starts empty.
  if (content_.hasOnlyRepeated()) return endRepeated();
  if (content_.hasOnlyCalls()) {
    std::vector<PendingCall> calls;
    calls.swap(content_.calls);
    content_.blocking.reset();
    noteLoneCall();
    Status status = launch(calls, true);
    keepRoom(content_.calls, calls);
    return status;
  }
  Content content = std::exchange(content_, {});
  Status status = run(content);
  keepRoom(content_.deviceCalls, content.deviceCalls);
  keepRoom(content_.repeated, content.repeated);
  return status;
}

void Group::forgo(const std::vector<PendingCall>& calls, const Status& cause) { forgoAll(calls, cause); }
void Group::forgo(const std::vector<DeviceCall>& calls, const Status& cause) { forgoAll(calls, cause); }
void Group::forgo(const std::vector<RepeatedMessage>& messages, const Status& cause) { forgoAll(messages, cause); }

Status Group::run(Content& content) {
  const auto forgoCalls = [&content](Status cause) {
    forgo(content.calls, cause);
    forgo(content.repeated, cause);
    forgo(content.deviceCalls, cause);
    return cause;
  };
  if (!content.error.ok()) {
    Status cause = undo(content.creations, content.error);
    return content.isForgone ? forgoCalls(std::move(cause)) : cause;
  }
  Status spelled = spellOut(content.repeated, content.calls);
  if (!spelled.ok()) return forgoCalls(undo(content.creations, std::move(spelled)));
  const bool blocking = content.blocking.value_or(true);
  const bool begins = !content.creations.empty() || !content.calls.empty() || !content.deviceCalls.empty();
  Status first;
  const auto keep = [&first](Status status) {
    if (first.ok() && status.code() != Code::InProgress) first = std::move(status);
    return first.ok();
  };
  if (!content.creations.empty() && !keep(create(std::move(content.creations), blocking))) return forgoCalls(first);
  if (!content.windows.empty() && !keep(settle(std::move(content.windows)))) return forgoCalls(first);
  if (!content.calls.empty() && !keep(launch(content.calls, blocking))) return first;
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
    bool isKnown = content.repeated.empty() && (!content.calls.empty() || !content.deviceCalls.empty());
    for (const RepeatedMessage& message : content.repeated)
      if (auto use = process().handles.useAgain(message.handle, message.comm); !use) return std::move(use).error();
    for (DeviceCall& call : content.deviceCalls) {
      auto use = process().handles.useAgain(call.handle, call.comm);
      if (!use) return std::move(use).error();
      TUTTI_TRY((*use)->chooseOnGpu({&call, 1}));
      isKnown = isKnown && !call.call.isMessage();
      if (call.plan != nullptr) totals[call.comm] += static_cast<float>(call.estimatedUs);
    }
    for (const PendingCall& call : content.calls) {
      auto use = process().handles.useAgain(call.handle, call.comm);
      if (!use) return std::move(use).error();
      isKnown = isKnown && call.call.collective != Collective::SendRecv;
      if (!isKnown) break;
      const auto summary = (*use)->summarize(call);
      if (!summary) return summary.error();
      totals[call.comm] += static_cast<float>(summary->estimatedUs);
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
  // Calls of a pair are made in their order.
  if (Status status = spellOut(content_.repeated, content_.calls); !status.ok()) return forgo(*call.comm, std::move(status));
  call.handle = handle;
  if (isOpen()) {
    content_.calls.push_back(std::move(call));
    return {};
  }
  Content alone;
  alone.blocking = blocking;
  alone.calls.push_back(std::move(call));
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

/// `calls` may name communicators that have ended meanwhile.
Status Group::launch(std::vector<PendingCall>& calls, bool blocking) {
  const bool isSmall = calls.size() <= Communicator::kMostKept;
  return blocking && isSmall && isOfOneHere(calls) ? launchOfOne(calls) : launchOfMany(calls);
}

/// What messages do again and again: nothing is allocated.
Status Group::launchOfOne(std::vector<PendingCall>& calls) {
  const auto use = process().handles.useAgain(calls.front().handle, calls.front().comm);
  if (use) (*use)->passEagerly(calls);
  if (calls.empty()) return {};
  const auto issue = [&]() -> Result<Work*> {
    if (!use) return tl::unexpected(use.error());
    if (Status status = (*use)->pairSelfMessages(calls); !status.ok()) return tl::unexpected(std::move(status));
    return &(*use)->issueHere(calls);
  };
  const Result<Work*> work = orOutOfMemory(issue);
  if (work) return exec::host::drive({&*work, 1}, (*use)->spins());
  forgo(calls, work.error());
  return work.error();
}

Status Group::launchOfMany(std::vector<PendingCall>& calls) {
  struct Issued {
    std::vector<Work*> here;
    std::vector<Cluster> clusters;
  };
  std::vector<Share> shares;
  const auto issue = [&]() -> Result<Issued> {
    if (Status status = divide(calls, shares); !status.ok()) return tl::unexpected(std::move(status));
    if (runsHere(shares)) return Issued{issueHere(shares), {}};
    return Issued{{}, clusterByStreams(shares)};
  };
  Result<Issued> issued = orOutOfMemory(issue);
  if (!issued) {
    forgo(calls, issued.error());
    return std::move(issued).error();
  }
  if (!issued->here.empty()) return exec::host::drive(issued->here, spinsOf(shares));
  for (Share& share : shares)
    if (share.inBackground) share.use->followWork();
  return submit(std::move(issued->clusters));
}

}  // namespace tutti::comm
