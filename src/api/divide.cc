// Communicators made of a part of another's ranks.

#include <algorithm>

#include "api/config.h"
#include "api/guard.h"

namespace tutti::api {
namespace {

using comm::ChildRequest;
using comm::Communicator;

Status checkNewComm(ncclComm_t* newcomm) {
  if (newcomm == nullptr) return error(Code::InvalidArgument, "newcomm is NULL: expected where to write the communicator");
  *newcomm = nullptr;
  return {};
}

/// On a non-blocking parent its state tells when the child is there; the call itself has done its part.
Status divide(Communicator& parent, ncclComm_t handle, ncclComm_t* newcomm, const ncclConfig_t* config, ChildRequest request) {
  TUTTI_TRY(parent.dividable(request.stopsWork));
  auto own = readConfig(config, &parent.config());
  if (!own) return std::move(own).error();
  request.result = newcomm;
  request.parent = handle;
  request.config = std::move(*own);
  Status status = comm::thisThread().group.add(std::move(request));
  return status.code() == Code::InProgress ? Status() : status;
}

Status readList(const Communicator& comm, int* list, int count, std::vector<int32_t>& excluded) {
  if (list == nullptr) return error(Code::InvalidArgument, "excludeRanksList is NULL: expected ranks to leave out");
  if (count <= 0) return error(Code::InvalidArgument, "excludeRanksCount {} is out of range: at least 1", count);
  if (count >= comm.ranks())
    return error(Code::InvalidArgument, "excludeRanksCount {} is out of range: of {} ranks one at least remains", count, comm.ranks());
  std::sort(list, list + count);
  for (int i = 0; i < count; ++i) {
    if (list[i] < 0 || list[i] >= comm.ranks())
      return error(Code::InvalidArgument, "excludeRanksList holds {}: the communicator has ranks 0 to {}", list[i], comm.ranks() - 1);
    if (list[i] == comm.rank().value)
      return error(Code::InvalidArgument, "excludeRanksList holds {}, the calling rank: only ranks that remain call", list[i]);
    if (i > 0 && list[i] == list[i - 1]) return error(Code::InvalidArgument, "excludeRanksList holds {} twice", list[i]);
  }
  excluded.assign(list, list + count);
  return {};
}

}  // namespace
}  // namespace tutti::api

using tutti::Status;
using tutti::comm::ChildRequest;
using tutti::comm::Communicator;

extern "C" ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config) {
  return tutti::api::useComm("ncclCommSplit", comm, [&](Communicator& parent) -> Status {
    TUTTI_TRY(tutti::api::checkNewComm(newcomm));
    ChildRequest request;
    request.kind = ChildRequest::Kind::Split;
    request.color = color;
    request.key = key;
    return tutti::api::divide(parent, comm, newcomm, config, std::move(request));
  });
}
TUTTI_WEAK_TWIN(ncclCommSplit);

extern "C" ncclResult_t pncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm,
                                        ncclConfig_t* config, int shrinkFlags) {
  return tutti::api::useComm("ncclCommShrink", comm, [&](Communicator& parent) -> Status {
    TUTTI_TRY(tutti::api::checkNewComm(newcomm));
    if (shrinkFlags != NCCL_SHRINK_DEFAULT && shrinkFlags != NCCL_SHRINK_ABORT)
      return tutti::error(tutti::Code::InvalidArgument,
                          "shrinkFlags {} is out of range: NCCL_SHRINK_DEFAULT (0) or NCCL_SHRINK_ABORT (1)", shrinkFlags);
    ChildRequest request;
    request.kind = ChildRequest::Kind::Shrink;
    request.stopsWork = shrinkFlags == NCCL_SHRINK_ABORT;
    TUTTI_TRY(tutti::api::readList(parent, excludeRanksList, excludeRanksCount, request.excluded));
    return tutti::api::divide(parent, comm, newcomm, config, std::move(request));
  });
}
TUTTI_WEAK_TWIN(ncclCommShrink);
