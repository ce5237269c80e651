#include "launch/exchange.h"

#include "launch/by_parent.h"
#include "launch/by_pmi.h"
#include "launch/by_socket.h"
#include "launch/variables.h"

namespace tutti::launch {

Result<ncclUniqueId> exchangeBySocket(const Standing& standing, const std::string& secret, const MakeId& makeId, Deadline deadline) {
  const auto where = "exchange of the unique id";
  if (standing.rank != 0) {
    Result<ncclUniqueId> id = takeId(standing, secret, deadline);
    if (!id) return tl::unexpected(std::move(id).error().at(where));
    return id;
  }
  Result<ncclUniqueId> id = makeId();
  if (!id) return id;
  if (Status status = giveId(standing, secret, *id, deadline); !status.ok()) return tl::unexpected(std::move(status).at(where));
  return id;
}

Result<ncclUniqueId> exchangeId(const Standing& standing, const Environment& environment, const MakeId& makeId,
                                std::chrono::milliseconds timeout) {
  if (standing.ranks == 1 || has(environment, "NCCL_COMM_ID")) return makeId();
  const Deadline deadline = Deadline::after(timeout);
  if (standing.launcher == Launcher::TuttiRun) return exchangeByParent(standing, makeId, deadline);
  if (standing.launcher == Launcher::Pmi && standing.descriptor >= 0) return exchangeByPmi(standing, makeId, deadline);
  if (standing.launcher == Launcher::Pmi || (!standing.isOneHost() && standing.hosts.empty())) {
    return fail(Code::InvalidUsage, "{}: {}; set NCCL_COMM_ID to host:port, an address of rank 0's host and a free port, on all ranks",
                name(standing.launcher), standing.hostProblem);
  }
  return exchangeBySocket(standing, textOf(environment, "TUTTI_JOB_SECRET"), makeId, deadline);
}

}  // namespace tutti::launch
