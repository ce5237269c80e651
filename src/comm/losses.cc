#include "comm/losses.h"

#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/link.h"
#include "comm/spread.h"
#include "core/format.h"
#include "core/host_name.h"
#include "exec/host/signature.h"

namespace tutti::comm {

using bootstrap::Roster;
using transport::local::Arena;
using transport::local::Hub;

namespace {

/// Those to whom it sent say what a rank did last; all others wait so long for their words.
constexpr std::chrono::milliseconds kForThoseWhoKnow(150);

/// What a rank that is gone did last, as far as this host knows: its board lies here, or something came from it.
std::string describeLast(Hub& hub, Rank rank) {
  const uint64_t begun = hub.board(rank).begun();
  const auto last = begun > 0 ? hub.board(rank).find(begun - 1) : std::nullopt;
  const uint64_t heard = hub.isOnHost(rank) || hub.remote() == nullptr ? 0 : hub.remote()->lastHeard(rank);
  if (heard != 0) return format("the last that came from rank {} was of {}", rank.value, exec::host::describeSignature(heard));
  const auto message = hub.lastMessageOf(rank);
  if (last && !hub.isOnHost(rank))  // told by the way, while somebody waited: it may have gone on since
    return format("the last call of rank {} that is known on this host was {}", rank.value, exec::host::describeCall(*last));
  if (last && message)
    return format("the last call of rank {} was {}, its last message {}", rank.value, exec::host::describeCall(*last),
                  exec::host::describeCall(*message));
  if (last || message) return format("the last call of rank {} was {}", rank.value, exec::host::describeCall(last ? *last : *message));
  return format("the last call of rank {} {}", rank.value, hub.isOnHost(rank) ? "was none" : "is not known on this host");
}

/// The process, its ranks in this communicator and what they did last.
std::string describeLoss(Hub& hub, const std::vector<int32_t>& ranks, const Status& cause) {
  std::string text = format("{}: {}", bootstrap::describeRanks(ranks), cause.text());
  for (const int32_t rank : ranks) text += "; " + describeLast(hub, Rank(rank));
  return text;
}

/// Whether a rank of the process has sent something here, or none of them is missed.
bool hasHeardFrom(Hub& hub, int32_t process) {
  bool isMissed = false;
  for (int32_t r = 0; r < hub.ranks(); ++r) {
    if (hub.processOf(Rank(r)) != process || hub.departed(Rank(r))) continue;
    if (hub.remote() == nullptr || hub.remote()->lastHeard(Rank(r)) != 0) return true;
    isMissed = true;
  }
  return !isMissed;
}

/// Of a process of this host that holds its lock no more.
Status causeOf(const Arena& arena, int32_t process) {
  const auto* entry = arena.entry(process);
  const int64_t pid = entry != nullptr ? entry->pid.load(std::memory_order_relaxed) : 0;
  const std::string host = hostName();
  return error(Code::RemoteError, "process {} on {} has ended without a word", pid, host.empty() ? "this host" : host);
}

/// A process is lost that may be one of the hub's.
void failForLoss(Hub& hub, int32_t process, bool tellsOthers) {
  const auto known = hub.arena()->losses();
  const auto loss = known.find(process);
  std::vector<int32_t> lost;
  for (int32_t r = 0; r < hub.ranks(); ++r)
    if (hub.processOf(Rank(r)) == process && !hub.departed(Rank(r))) lost.push_back(r);
  if (loss == known.end() || lost.empty()) return;
  for (const int32_t r : lost) hub.blame(Rank(r));
  try {
    hub.failAll(error(Code::RemoteError, "{}", describeLoss(hub, lost, loss->second)), tellsOthers);
  } catch (const std::bad_alloc&) {  // without the words: this may run on the bootstrap's thread, and nobody would say it again
    hub.failAll(Code::RemoteError);
  }
}

}  // namespace

void failWithout(Arena& arena, const Roster& roster, int32_t process, const Status& cause) {
  const std::string why = cause.ok() ? "" : format(" ({})", cause.text());
  const char* const how = bootstrap::isSilence(cause) ? "has ended, or cannot be reached" : "has ended without a word";
  const auto& lost = roster.process(process);
  arena.lose(process, error(Code::RemoteError, "process {} on {} {}{}", lost.pid, roster.host(lost.host).name, how, why));
  const bool isOfHost = roster.process(process).host == roster.ownHost;
  const bool tellsOthers = roster.processes.size() <= Spread::kMostDirect;
  for (const auto& hub : arena.hubs()) {  // one that is attached from here on finds the loss itself
    if (isOfHost || !tellsOthers || hasHeardFrom(*hub, process)) {
      failForLoss(*hub, process, tellsOthers);
    } else {
      roster.mesh->after(kForThoseWhoKnow, [weak = std::weak_ptr(hub), process] {
        if (const auto alive = weak.lock()) failForLoss(*alive, process, false);
      });
    }
  }
}

void failWithout(Hub& hub, int32_t process) {
  Arena& arena = *hub.arena();
  arena.lose(process, causeOf(arena, process));
  for (const auto& each : arena.hubs()) failForLoss(*each, process, true);
}

void lookForDead(Hub& hub) {
  if (const auto process = hub.lookForDead()) failWithout(hub, *process);
}

void failIfLost(Hub& hub) {
  for (const auto& [process, cause] : hub.arena()->losses()) failForLoss(hub, process, false);
}

Status lossOf(Hub& hub, Rank rank) {
  const int32_t process = hub.processOf(rank);
  const auto known = hub.arena()->losses();
  if (const auto loss = known.find(process); loss != known.end())
    return error(Code::RemoteError, "{}", describeLoss(hub, {rank.value}, loss->second));
  const Status cause = causeOf(*hub.arena(), process);  // its lock is gone; the mesh has not noticed yet
  return error(Code::RemoteError, "{}", describeLoss(hub, {rank.value}, cause));
}

}  // namespace tutti::comm
