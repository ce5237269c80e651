// What nccl.h and nccl_device.h declare and this version does not have: a defined error that says what to do instead.

#include "api/guard.h"
#include "nccl_device.h"

using tutti::api::guard;
using tutti::api::notBuilt;
using tutti::api::withComm;
using tutti::comm::Communicator;

namespace {

constexpr const char* kNoDeviceApi = "call the collectives from the host";

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
