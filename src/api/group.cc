// Groups of calls.

#include <cstddef>
#include <optional>

#include "api/guard.h"

using tutti::Code;
using tutti::Status;
using tutti::api::guard;

namespace {

/// Ends the group. An error of one of its calls was reported when that call was refused: only its code comes back here.
ncclResult_t endGroup(const char* function) {
  Status failed;
  const ncclResult_t result = guard(function, [&]() -> Status {
    tutti::comm::Group& group = tutti::comm::thisThread().group;
    const bool reported = group.hasFailed();
    Status status = group.end();
    if (!reported) return status;
    failed = std::move(status);
    return {};
  });
  return failed.ok() ? result : tutti::api::toResult(failed.code());
}

}  // namespace

extern "C" ncclResult_t pncclGroupStart() {
  return guard("ncclGroupStart", []() -> Status {
    tutti::comm::thisThread().group.start();
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclGroupStart);

extern "C" ncclResult_t pncclGroupEnd() { return endGroup("ncclGroupEnd"); }
TUTTI_WEAK_TWIN(ncclGroupEnd);

extern "C" ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t* simInfo) {
  if (simInfo == nullptr) return endGroup("ncclGroupSimulateEnd");
  return guard("ncclGroupSimulateEnd", [&]() -> Status {
    tutti::comm::Group& group = tutti::comm::thisThread().group;
    if (!group.isOpen()) return tutti::error(Code::InvalidUsage, "ncclGroupSimulateEnd without ncclGroupStart");
    constexpr unsigned int kMagic = 0x74685283;
    if (simInfo->size < offsetof(ncclSimInfo_t, estimatedTime) || simInfo->magic != kMagic)
      return tutti::error(Code::InvalidArgument, "the ncclSimInfo_t argument was not initialized via NCCL_SIM_INFO_INITIALIZER");
    std::optional<float> estimated;
    TUTTI_TRY(group.simulate(estimated));
    if (estimated && simInfo->size >= offsetof(ncclSimInfo_t, estimatedTime) + sizeof simInfo->estimatedTime)
      simInfo->estimatedTime = *estimated;
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclGroupSimulateEnd);
