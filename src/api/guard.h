// The frame of every exported function: nothing is thrown into foreign code, and every error leaves a text behind.
// Stateless; any thread.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "comm/process.h"
#include "core/status.h"
#include "nccl.h"
#include "observe/log.h"

/// Exports pncclX, defined just above, as the weak ncclX too, so that tools can put themselves in between.
#define TUTTI_WEAK_TWIN(name) \
  extern "C" decltype(p##name) name __attribute__((weak, alias("p" #name)))

namespace tutti::api {

static_assert(static_cast<int>(Code::InProgress) == ncclInProgress && static_cast<int>(Code::InvalidUsage) == ncclInvalidUsage);

inline ncclResult_t toResult(Code code) { return static_cast<ncclResult_t>(code); }

/// Logs the error under the function's name, remembers it for an open group, and returns its code.
ncclResult_t report(const char* function, const Status& status) noexcept;

/// Runs `body`, which returns a Status, and turns whatever comes out into a result code.
template <class Body>
ncclResult_t guard(const char* function, Body&& body) noexcept {
  try {
    if (comm::forked().parent != 0) [[unlikely]]
      return report(function, comm::refuseForked());
    Status status = std::forward<Body>(body)();
    if (status.ok()) [[likely]]
      return ncclSuccess;
    if (status.code() == Code::InProgress) return ncclInProgress;  // no error: it has begun
    return report(function, status);
  } catch (const std::bad_alloc&) {
    return report(function, Status(Code::SystemError, "out of memory"));
  } catch (const std::exception& e) {
    return report(function, Status(Code::InternalError, e.what()));
  } catch (...) {
    return report(function, Status(Code::InternalError, "an exception of unknown type"));
  }
}

/// Why the handle names no communicator.
Status deadHandle(ncclComm_t comm);

/// Runs `body(communicator)` while the handle keeps the communicator alive; InvalidArgument for anything but a live handle. For
/// questions: an error is the call's alone.
template <class Body>
ncclResult_t withComm(const char* function, ncclComm_t comm, Body&& body) noexcept {
  return guard(function, [&]() -> Status {
    const comm::HandleTable::Use use = comm::process().handles.use(comm);
    if (!use) [[unlikely]]
      return deadHandle(comm);
    observe::setCurrentDevice(use->device());
    return body(*use);
  });
}

/// The same for uses of the communicator: on a non-blocking one an error becomes its state.
template <class Body>
ncclResult_t useComm(const char* function, ncclComm_t comm, Body&& body) noexcept {
  return withComm(function, comm, [&](comm::Communicator& c) -> Status {
    Status status = body(c);
    if (!status.ok() && !c.isBlocking() && status.code() != Code::InProgress) [[unlikely]]
      c.poison(status);
    return status;
  });
}

/// The error of a function, or of an option, that is not built yet: what is missing, and what to use instead.
Status notBuilt(const char* what, const char* instead);

}  // namespace tutti::api
