// What nccl.h and nccl_device.h declare and this version does not have: a defined error that says what to do instead.

#include "api/guard.h"
#include "nccl_device.h"

using tutti::Code;
using tutti::Status;
using tutti::api::guard;
using tutti::api::notBuilt;
using tutti::api::withComm;
using tutti::comm::Communicator;

namespace {

constexpr const char* kNoDeviceApi = "call the collectives from the host";

Status checkNewComm(ncclComm_t* newcomm) {
  if (newcomm == nullptr) return tutti::error(Code::InvalidArgument, "newcomm is NULL: expected where to write the communicator");
  *newcomm = nullptr;
  return {};
}

/// The functions that cannot return a code leave their reason in ncclGetLastError.
ncclTeam_t noTeam(const char* function) {
  (void)tutti::api::report(function, notBuilt("the device API", kNoDeviceApi));
  return {};
}
int noRank(const char* function) {
  (void)tutti::api::report(function, notBuilt("the device API", kNoDeviceApi));
  return -1;
}

}  // namespace

extern "C" ncclResult_t pncclCommSplit(ncclComm_t comm, int, int, ncclComm_t* newcomm, ncclConfig_t*) {
  return withComm("ncclCommSplit", comm, [&](Communicator&) -> Status {
    TUTTI_TRY(checkNewComm(newcomm));
    return notBuilt("splitting a communicator", "make the smaller one from a unique id of its own: ncclGetUniqueId and ncclCommInitRank");
  });
}
TUTTI_WEAK_TWIN(ncclCommSplit);

extern "C" ncclResult_t pncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm, ncclConfig_t*,
                                        int) {
  return withComm("ncclCommShrink", comm, [&](Communicator&) -> Status {
    TUTTI_TRY(checkNewComm(newcomm));
    if (excludeRanksList == nullptr) return tutti::error(Code::InvalidArgument, "excludeRanksList is NULL: expected ranks to leave out");
    if (excludeRanksCount <= 0)
      return tutti::error(Code::InvalidArgument, "excludeRanksCount {} is out of range: at least 1", excludeRanksCount);
    return notBuilt("shrinking a communicator", "abort it and make a new one: ncclCommAbort, ncclGetUniqueId and ncclCommInitRank");
  });
}
TUTTI_WEAK_TWIN(ncclCommShrink);

extern "C" ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags) {
  if (comm == nullptr) return ncclSuccess;
  return withComm("ncclCommRevoke", comm, [&](Communicator&) -> Status {
    if (revokeFlags != NCCL_REVOKE_DEFAULT)
      return tutti::error(Code::InvalidArgument, "revokeFlags {} is out of range: only NCCL_REVOKE_DEFAULT (0)", revokeFlags);
    return notBuilt("revoking a communicator", "abort it: ncclCommAbort");
  });
}
TUTTI_WEAK_TWIN(ncclCommRevoke);

extern "C" ncclResult_t pncclDevCommCreate(ncclComm_t comm, ncclDevCommRequirements_t const*, ncclDevComm_t*) {
  return withComm("ncclDevCommCreate", comm, [](Communicator&) { return notBuilt("the device API", kNoDeviceApi); });
}
TUTTI_WEAK_TWIN(ncclDevCommCreate);

extern "C" ncclResult_t pncclDevCommDestroy(ncclComm_t comm, ncclDevComm_t const*) {
  return withComm("ncclDevCommDestroy", comm, [](Communicator&) { return notBuilt("the device API", kNoDeviceApi); });
}
TUTTI_WEAK_TWIN(ncclDevCommDestroy);

extern "C" ncclTeam_t pncclTeamWorld(ncclComm_t) { return noTeam("ncclTeamWorld"); }
TUTTI_WEAK_TWIN(ncclTeamWorld);
extern "C" ncclTeam_t pncclTeamLsa(ncclComm_t) { return noTeam("ncclTeamLsa"); }
TUTTI_WEAK_TWIN(ncclTeamLsa);
extern "C" ncclTeam_t pncclTeamRail(ncclComm_t) { return noTeam("ncclTeamRail"); }
TUTTI_WEAK_TWIN(ncclTeamRail);
extern "C" int pncclTeamRankToWorld(ncclComm_t, ncclTeam_t, int) { return noRank("ncclTeamRankToWorld"); }
TUTTI_WEAK_TWIN(ncclTeamRankToWorld);
extern "C" int pncclTeamRankToLsa(ncclComm_t, ncclTeam_t, int) { return noRank("ncclTeamRankToLsa"); }
TUTTI_WEAK_TWIN(ncclTeamRankToLsa);

extern "C" ncclResult_t pncclLsaBarrierCreateRequirement(ncclTeam_t, int, ncclLsaBarrierHandle_t*, ncclDevResourceRequirements_t*) {
  return guard("ncclLsaBarrierCreateRequirement", [] { return notBuilt("the device API", kNoDeviceApi); });
}
TUTTI_WEAK_TWIN(ncclLsaBarrierCreateRequirement);

extern "C" ncclResult_t pncclGinBarrierCreateRequirement(ncclComm_t, ncclTeam_t, int, ncclGinBarrierHandle_t*,
                                                         ncclDevResourceRequirements_t*) {
  return guard("ncclGinBarrierCreateRequirement", [] { return notBuilt("the device API", kNoDeviceApi); });
}
TUTTI_WEAK_TWIN(ncclGinBarrierCreateRequirement);

extern "C" ncclResult_t pncclLLA2ACreateRequirement(int, int, ncclLLA2AHandle_t*, ncclDevResourceRequirements_t*) {
  return guard("ncclLLA2ACreateRequirement", [] { return notBuilt("the device API", kNoDeviceApi); });
}
TUTTI_WEAK_TWIN(ncclLLA2ACreateRequirement);

extern "C" int pncclLLA2ACalcSlots(int, int) { return noRank("ncclLLA2ACalcSlots"); }
TUTTI_WEAK_TWIN(ncclLLA2ACalcSlots);
