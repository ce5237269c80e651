// The library itself: version, error strings, the latest error, the log.

#include "api/guard.h"
#include "tutti.h"

extern "C" ncclResult_t pncclGetVersion(int* version) {
  return tutti::api::guard("ncclGetVersion", [&]() -> tutti::Status {
    if (version == nullptr) return tutti::error(tutti::Code::InvalidArgument, "version is NULL: expected where to write the number");
    tutti::observe::setUpLog();  // callers make this call early so that the configuration files are read before their threads start
    *version = NCCL_VERSION_CODE;
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclGetVersion);

extern "C" const char* pncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "unknown result code";
  }
}
TUTTI_WEAK_TWIN(ncclGetErrorString);

// One text for the process, whatever the communicator.
extern "C" const char* pncclGetLastError(ncclComm_t) {
  try {
    return tutti::observe::lastErrorText();
  } catch (...) {
    return "";
  }
}
TUTTI_WEAK_TWIN(ncclGetLastError);

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
extern "C" void pncclResetDebugInit() {
  (void)tutti::api::guard("ncclResetDebugInit", []() -> tutti::Status {
    tutti::observe::resetLog();
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclResetDebugInit);
extern "C" void ncclResetDebugInitInternal() { pncclResetDebugInit(); }
#pragma GCC diagnostic pop

extern "C" int tuttiVersion() { return TUTTI_VERSION_CODE; }
extern "C" const char* tuttiVersionString() { return "0.1.0"; }
