#include "comm/group.h"

#include <algorithm>
#include <utility>

#include "comm/process.h"
#include "observe/log.h"

namespace tutti::comm {
namespace {

using exec::host::Stream;
using exec::host::Work;

/// The calls of one communicator in a launch.
struct Share {
  HandleTable::Use use;
  std::vector<PendingCall> calls;
  std::vector<std::shared_ptr<Stream>> streams;  // distinct; null: complete on return
};

/// Shares that have a stream in common, directly or through others: they run on one thread, or they would wait for each other.
struct Cluster {
  std::vector<std::unique_ptr<Work>> works;
  std::vector<std::shared_ptr<Stream>> streams;
  int32_t spins = 0;
};

bool intersects(const std::vector<std::shared_ptr<Stream>>& a, const std::vector<std::shared_ptr<Stream>>& b) {
  return std::any_of(a.begin(), a.end(), [&](const auto& s) { return std::find(b.begin(), b.end(), s) != b.end(); });
}

void addStreams(std::vector<std::shared_ptr<Stream>>& to, const std::vector<std::shared_ptr<Stream>>& from) {
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

}  // namespace

void Group::fail(const Status& status) {
  if (isOpen() && error_.ok()) error_ = status;
}

void Group::discard() {
  if (depth_ == 0 || --depth_ > 0) return;
  error_ = Status();
  joins_.clear();
  calls_.clear();
  endings_.clear();
}

Status Group::end() {
  if (depth_ == 0) return error(Code::InvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--depth_ > 0) return {};
  // Taken out first: whatever happens below, the next group starts empty.
  Status failed = std::exchange(error_, Status());
  auto joins = std::exchange(joins_, {});
  auto calls = std::exchange(calls_, {});
  auto endings = std::exchange(endings_, {});
  if (!failed.ok()) return failed;
  if (!joins.empty()) TUTTI_TRY(join(std::move(joins)));
  if (!calls.empty()) TUTTI_TRY(launch(std::move(calls)));
  Status first;
  for (const auto& ending : endings) {
    Status status = ending();
    if (first.ok()) first = std::move(status);
  }
  return first;
}

Status Group::add(ncclComm* handle, PendingCall call) {
  if (!isOpen() && call.stream == nullptr && call.planned.plan != nullptr) return call.comm->runAlone(call);
  std::vector<Entry> alone;
  std::vector<Entry>& entries = isOpen() ? calls_ : alone;
  entries.push_back({handle, std::move(call)});
  return isOpen() ? Status() : launch(std::move(alone));
}

Status Group::add(JoinRequest request) {
  if (isOpen()) {
    joins_.push_back(std::move(request));
    return {};
  }
  std::vector<JoinRequest> alone;
  alone.push_back(std::move(request));
  return join(std::move(alone));
}

Status Group::addEnding(std::function<Status()> ending) {
  if (!isOpen()) return ending();
  endings_.push_back(std::move(ending));
  return {};
}

Status Group::launch(std::vector<Entry> entries) {
  std::vector<Share> shares;
  std::vector<ncclComm*> handles;
  for (Entry& entry : entries) {
    const auto at = static_cast<size_t>(std::find(handles.begin(), handles.end(), entry.handle) - handles.begin());
    if (at == handles.size()) {
      handles.push_back(entry.handle);
      shares.push_back({process().handles.use(entry.handle), {}, {}});
      if (!shares.back().use || &*shares.back().use != entry.call.comm)
        return error(Code::InvalidUsage, "a communicator was destroyed or aborted while its calls waited for ncclGroupEnd");
    }
    if (entry.call.stream != nullptr && entry.call.stream->isStopped())
      return error(Code::InvalidUsage, "a stream was destroyed while calls on it waited for ncclGroupEnd");
    Share& share = shares[at];
    addStreams(share.streams, {entry.call.stream});
    share.calls.push_back(std::move(entry.call));
  }
  for (Share& share : shares) TUTTI_TRY(share.use->pairSelfMessages(share.calls));
  return submit(clusterByStreams(shares));
}

namespace {

/// Ends the meetings of requests that failed: nobody is left waiting for a rank that will not come.
Status giveUp(const std::vector<std::shared_ptr<Meeting>>& meetings, const std::vector<JoinRequest>& requests, Status cause) {
  for (size_t i = 0; i < meetings.size(); ++i) {
    meetings[i]->end(error(cause.code(), "another rank of the same group failed to join: {}", cause.text()));
    process().rendezvous.forget(requests[i].id, meetings[i]);
  }
  return cause;
}

/// Makes the communicator of one request whose meeting may still be under way.
Result<ncclComm*> finishJoin(Meeting& meeting, const JoinRequest& request) {
  auto outcome = meeting.wait();
  if (!outcome) return tl::unexpected(std::move(outcome).error());
  Config config = request.config;
  config.minCtas = outcome->minCtas;
  config.maxCtas = outcome->maxCtas;
  const uint64_t hash = Rendezvous::hashOf(request.id);
  auto comm = Communicator::create(std::move(outcome->hub), request.rank, request.ranks, request.device, hash, config);
  if (!comm) return tl::unexpected(std::move(comm).error());
  auto handle = process().handles.make(comm->get());
  if (!handle) return tl::unexpected(std::move(handle).error());
  (void)comm->release();  // owned through its handle from here on
  observe::info(observe::Subsys::Init, "{} comm {} rank {} nranks {} cudaDev {} commId 0x{:x} - Init COMPLETE", request.function,
                static_cast<void*>(*handle), request.rank.value, request.ranks, request.device, hash);
  return *handle;
}

/// Undoes a communicator that its caller will never hear of.
void discardComm(ncclComm* handle) {
  HandleTable::Use use = process().handles.use(handle);
  const std::unique_ptr<Communicator> comm(process().handles.retire(use));
  process().handles.waitUnused(use);
}

}  // namespace

Status Group::join(std::vector<JoinRequest> requests) {
  // Everybody arrives before anybody waits, so that one thread can bring several ranks.
  std::vector<std::shared_ptr<Meeting>> meetings;
  for (const JoinRequest& r : requests) {
    auto meeting = process().rendezvous.arrive(r.id, r.ranks, r.rank, r.config.minCtas, r.config.maxCtas);
    if (!meeting) return giveUp(meetings, requests, std::move(meeting).error());
    meetings.push_back(std::move(*meeting));
  }
  std::vector<ncclComm*> handles;
  for (size_t i = 0; i < requests.size(); ++i) {
    auto handle = finishJoin(*meetings[i], requests[i]);
    if (handle) {
      handles.push_back(*handle);
      continue;
    }
    for (ncclComm* made : handles) discardComm(made);
    return giveUp(meetings, requests, std::move(handle).error());
  }
  for (size_t i = 0; i < requests.size(); ++i) *requests[i].result = handles[i];
  return {};
}

}  // namespace tutti::comm
