// Memory, and hints about it.

#include "api/guard.h"

using tutti::Code;
using tutti::Status;
using tutti::api::guard;
using tutti::api::useComm;
using tutti::api::withComm;
using tutti::comm::Communicator;

extern "C" ncclResult_t pncclMemAlloc(void** ptr, size_t size) {
  return guard("ncclMemAlloc", [&]() -> Status {
    if (ptr == nullptr) return tutti::error(Code::UnhandledCudaError, "ptr is NULL: expected where to write the address");
    *ptr = nullptr;
    if (size == 0) return {};
    auto& devices = tutti::comm::process().devices;
    const auto gpus = devices.useGpus();
    if (!gpus) return gpus.error();
    if (*gpus) {
      const auto memory = devices.allocate(tutti::Bytes(size));
      if (!memory) return memory.error();
      *ptr = *memory;
      return {};
    }
    const auto memory = tutti::comm::process().memory.allocate(tutti::Bytes(size));
    if (!memory) return memory.error();
    *ptr = *memory;
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclMemAlloc);

extern "C" ncclResult_t pncclMemFree(void* ptr) {
  return guard("ncclMemFree", [&]() -> Status {
    if (ptr == nullptr || tutti::comm::process().memory.free(ptr) || tutti::comm::process().devices.free(ptr)) return {};
    return tutti::error(Code::UnhandledCudaError, "ptr {} was not returned by ncclMemAlloc, or has been freed", ptr);
  });
}
TUTTI_WEAK_TWIN(ncclMemFree);

// A hint that is not taken: host devices read each other's buffers as they are, and of GPUs no rank would know which buffers its peers have
// registered and pass to a call; windows say so. No handle is needed.
extern "C" ncclResult_t pncclCommRegister(const ncclComm_t comm, void*, size_t, void** handle) {
  return withComm("ncclCommRegister", comm, [&](Communicator&) -> Status {
    if (handle == nullptr) return tutti::error(Code::InvalidArgument, "handle is NULL: expected where to write the handle");
    *handle = nullptr;
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclCommRegister);

extern "C" ncclResult_t pncclCommDeregister(const ncclComm_t comm, void* handle) {
  return withComm("ncclCommDeregister", comm, [&](Communicator&) -> Status {
    if (handle == nullptr) return {};
    return tutti::error(Code::InvalidUsage, "handle {} is no registration of this communicator", handle);
  });
}
TUTTI_WEAK_TWIN(ncclCommDeregister);

extern "C" ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags) {
  return useComm("ncclCommWindowRegister", comm, [&](Communicator& c) -> Status {
    if (buff == nullptr || size == 0) return {};
    if (win == nullptr) return tutti::error(Code::InvalidArgument, "win is NULL: expected where to write the window");
    *win = nullptr;
    constexpr uintptr_t kAlignment = NCCL_WIN_REQUIRED_ALIGNMENT;
    if (reinterpret_cast<uintptr_t>(buff) % kAlignment != 0)
      return tutti::error(Code::InvalidArgument, "buff {} is not aligned: windows begin at multiples of {} bytes", buff, kAlignment);
    if (tutti::config::get<tutti::config::Param::WinEnable>() == 0) return {};
    if (!c.isOnGpu())
      return tutti::api::notBuilt("a symmetric window", "collectives take unregistered buffers at the same speed on host devices");
    if (Status status = c.usable(); !status.ok()) return status;
    return tutti::comm::thisThread().group.add(
        tutti::comm::WindowRequest{comm, &c, buff, size, (winFlags & NCCL_WIN_COLL_SYMMETRIC) != 0, reinterpret_cast<void**>(win)});
  });
}
TUTTI_WEAK_TWIN(ncclCommWindowRegister);

extern "C" ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  return withComm("ncclCommWindowDeregister", comm, [&](Communicator& c) -> Status {
    if (win == nullptr) return {};
    return c.endWindow(win);
  });
}
TUTTI_WEAK_TWIN(ncclCommWindowDeregister);
