#include "api/guard.h"

namespace tutti::api {

ncclResult_t report(const char* function, const Status& status) noexcept {
  try {
    comm::thisThread().group.fail(status);  // first: what follows may find no memory
    observe::warn("{}: {}", function, status.text());
  } catch (...) {  // no memory to say it with: the code must do
  }
  return toResult(status.code());
}

Status deadHandle(ncclComm_t comm) {
  if (comm == nullptr) return error(Code::InvalidArgument, "comm is NULL: expected a communicator made by ncclCommInit*");
  if (comm::process().handles.isRetired(comm))
    return error(Code::InvalidArgument, "comm {} has been destroyed or aborted", static_cast<void*>(comm));
  return error(Code::InvalidArgument, "comm {} is no communicator: it was not made by ncclCommInit* of this library",
               static_cast<void*>(comm));
}

Status notBuilt(const char* what, const char* instead) {
  return error(Code::InvalidUsage, "{} is not built yet in this version of tutti; {}", what, instead);
}

}  // namespace tutti::api
