// The end of communicators, and what they say of themselves.

#include <memory>
#include <optional>

#include "api/guard.h"

namespace tutti::api {
namespace {

using comm::Communicator;
using comm::HandleTable;

Status writeInt(Communicator& comm, int* to, const char* argument, int value) {
  if (to == nullptr) return error(Code::InvalidArgument, "{} is NULL: expected where to write the number", argument);
  // A blocking one is ready as soon as its caller has it, and stays so.
  if (!comm.isBlocking() || !comm.isOpen()) TUTTI_TRY(comm.checkReady());
  *to = value;
  return {};
}

/// An abort of what has been destroyed or aborted need not be kept from happening twice; it ends what a destroy still waits for.
Status endedAlready(ncclComm_t handle, bool abort) {
  if (!abort || !comm::process().handles.isRetired(handle)) return deadHandle(handle);
  comm::process().departures.abort(handle);
  return {};
}

/// Takes the communicator out of the API, lets every call and all work on it come to an end, and frees it.
Status endComm(ncclComm_t handle, bool abort) {
  HandleTable& handles = comm::process().handles;
  HandleTable::Use use = handles.use(handle);
  if (!use) return endedAlready(handle, abort);
  // While this waits for its work the handle stays live, so that an abort can still cut the wait short.
  if (!abort) {
    if (Status status = use->destroyable(); !status.ok()) {
      use->poison(status);
      return status;
    }
    use->close();
  }
  std::optional<comm::Departures::Entry> departure;
  if (!abort) departure.emplace(comm::process().departures, handle, *use);
  std::unique_ptr<Communicator> comm(handles.retire(use));
  if (comm == nullptr) {  // another call was faster: the communicator is gone, as asked, or departs
    if (abort) comm::process().departures.abort(handle);
    return {};
  }
  if (abort) comm->abort();  // what is queued on streams fails by itself later, without touching anything of the caller's
  handles.waitUnused(use);
  comm->depart();
  observe::info(observe::Subsys::Init, "comm {} rank {} nranks {} cudaDev {} commId 0x{:x} - {} COMPLETE", static_cast<void*>(handle),
                comm->rank().value, comm->ranks(), comm->device(), comm->hash(), abort ? "Abort" : "Destroy");
  return {};
}

/// Endings inside a group happen when it ends, after its calls were launched. But an abort waits for nobody, and so not for those either.
ncclResult_t endInGroup(const char* function, ncclComm_t handle, bool abort) {
  return guard(function, [&]() -> Status {
    if (handle == nullptr) return {};
    if (!comm::process().handles.use(handle)) return endedAlready(handle, abort);
    if (abort) return endComm(handle, true);
    return comm::thisThread().group.addEnding([handle] { return endComm(handle, false); });
  });
}

}  // namespace
}  // namespace tutti::api

using tutti::Code;
using tutti::Status;
using tutti::api::useComm;
using tutti::api::withComm;
using tutti::comm::Communicator;

extern "C" ncclResult_t pncclCommFinalize(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  return useComm("ncclCommFinalize", comm, [&](Communicator&) -> Status {
    return tutti::comm::thisThread().group.addEnding([comm]() -> Status {
      const auto use = tutti::comm::process().handles.use(comm);
      return use ? use->finalize() : tutti::api::deadHandle(comm);
    });
  });
}
TUTTI_WEAK_TWIN(ncclCommFinalize);

extern "C" ncclResult_t pncclCommDestroy(ncclComm_t comm) { return tutti::api::endInGroup("ncclCommDestroy", comm, false); }
TUTTI_WEAK_TWIN(ncclCommDestroy);

extern "C" ncclResult_t pncclCommAbort(ncclComm_t comm) { return tutti::api::endInGroup("ncclCommAbort", comm, true); }
TUTTI_WEAK_TWIN(ncclCommAbort);

extern "C" ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags) {
  if (comm == nullptr) return ncclSuccess;
  return withComm("ncclCommRevoke", comm, [&](Communicator& c) -> Status {
    if (revokeFlags != NCCL_REVOKE_DEFAULT)
      return tutti::error(Code::InvalidArgument, "revokeFlags {} is out of range: only NCCL_REVOKE_DEFAULT (0)", revokeFlags);
    TUTTI_TRY(c.revoke());
    tutti::observe::info(tutti::observe::Subsys::Init, "comm {} rank {} nranks {} cudaDev {} commId 0x{:x} - Revoke COMPLETE, result 0",
                         static_cast<void*>(comm), c.rank().value, c.ranks(), c.device(), c.hash());
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclCommRevoke);

extern "C" ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  return withComm("ncclCommGetAsyncError", comm, [&](Communicator& c) -> Status {
    if (asyncError == nullptr) return tutti::error(tutti::Code::InvalidArgument, "asyncError is NULL: expected where to write the state");
    *asyncError = tutti::api::toResult(c.state());
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclCommGetAsyncError);

extern "C" ncclResult_t pncclCommCount(const ncclComm_t comm, int* count) {
  return withComm("ncclCommCount", comm, [&](Communicator& c) { return tutti::api::writeInt(c, count, "count", c.ranks()); });
}
TUTTI_WEAK_TWIN(ncclCommCount);

extern "C" ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int* device) {
  return withComm("ncclCommCuDevice", comm, [&](Communicator& c) { return tutti::api::writeInt(c, device, "device", c.device()); });
}
TUTTI_WEAK_TWIN(ncclCommCuDevice);

extern "C" ncclResult_t pncclCommUserRank(const ncclComm_t comm, int* rank) {
  return withComm("ncclCommUserRank", comm, [&](Communicator& c) { return tutti::api::writeInt(c, rank, "rank", c.rank().value); });
}
TUTTI_WEAK_TWIN(ncclCommUserRank);
