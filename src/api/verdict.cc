// tutti.h: deadlines, and why a wait gave up.

#include "api/guard.h"
#include "api/text.h"
#include "tutti.h"

using tutti::Code;
using tutti::Status;
using tutti::api::withComm;

extern "C" ncclResult_t tuttiCommSetTimeout(ncclComm_t comm, long long milliseconds) {
  return withComm("tuttiCommSetTimeout", comm, [&](tutti::comm::Communicator& c) -> Status {
    if (milliseconds < 0 || milliseconds > tutti::comm::kLongestTimeoutMs)
      return tutti::error(Code::InvalidArgument, "milliseconds {} is out of range: 0 (no limit) to {}", milliseconds,
                          tutti::comm::kLongestTimeoutMs);
    if (!c.isOpen()) TUTTI_TRY(c.checkReady());
    c.setTimeout(milliseconds);
    return {};
  });
}

extern "C" ncclResult_t tuttiCommGetVerdict(ncclComm_t comm, char* text, size_t capacity, size_t* needed) {
  return withComm("tuttiCommGetVerdict", comm, [&](tutti::comm::Communicator& c) -> Status {
    if (!c.isOpen()) TUTTI_TRY(c.checkReady());
    TUTTI_TRY(tutti::api::checkText(text, capacity));
    tutti::api::writeText(c.verdictJson(), text, capacity, needed);
    return {};
  });
}
