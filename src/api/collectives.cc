// Collectives and messages: every call becomes a request of its communicator.

#include "api/guard.h"

namespace tutti::api {
namespace {

using comm::CallRequest;
using comm::Communicator;

static_assert(static_cast<int>(DataType::F8E5M2) == ncclFloat8e5m2 && static_cast<int>(DataType::BF16) == ncclBfloat16 &&
              static_cast<int>(DataType::F16) == ncclFloat16 && kNumDataTypes == ncclNumTypes);
static_assert(static_cast<int>(ReduceOp::Sum) == ncclSum && static_cast<int>(ReduceOp::Prod) == ncclProd &&
              static_cast<int>(ReduceOp::Max) == ncclMax && static_cast<int>(ReduceOp::Min) == ncclMin);

ncclResult_t runAny(const CallRequest& request, ncclComm_t comm, cudaStream_t stream) {
  return useComm(request.function, comm, [&](Communicator& c) -> Status {
    if (c.isOnGpu()) {
      auto call = orOutOfMemory([&] { return c.prepareOnGpu(request, stream); });
      if (!call) return comm::thisThread().group.forgo(c, std::move(call).error());
      return comm::thisThread().group.add(comm, std::move(*call));
    }
    auto pending = orOutOfMemory([&] { return c.prepare(request); });
    if (!pending) return comm::thisThread().group.forgo(c, std::move(pending).error());
    if (stream != nullptr) {
      pending->stream = comm::process().streams.find(stream);
      if (pending->stream == nullptr)
        return error(Code::InvalidArgument, "stream {} is no live host stream: on host devices use NULL or one made by tuttiStreamCreate",
                     static_cast<void*>(stream));
    }
    return comm::thisThread().group.add(comm, std::move(*pending));
  });
}

[[gnu::cold]] ncclResult_t finishAgain(const CallRequest& request, Communicator& comm) {
  return guard(request.function, [&] {
    observe::setCurrentDevice(comm.device());
    return comm.finishAgain();
  });
}

/// A message like an earlier one joins the thread's open group. False: there is no group, or it is to be made the long way.
bool addAgain(const CallRequest& request, ncclComm_t comm) noexcept {
  comm::Visitor* const visitor = comm::threadWords.group;
  if (visitor == nullptr) return false;
  const comm::HandleTable::Visit visit(*visitor, comm);
  try {
    return visit && comm::thisThread().group.addAgain(comm, *visit, request);
  } catch (...) {  // no memory: the long way says so
    return false;
  }
}

/// A lone call like the one before goes straight to its communicator; all others, and what is wrong with any, go the long way.
[[gnu::always_inline]] inline ncclResult_t run(const CallRequest& request, ncclComm_t comm, cudaStream_t stream) {
  comm::Visitor* const visitor = stream == nullptr ? comm::threadWords.lone : nullptr;
  if (visitor != nullptr) [[likely]] {
    const comm::HandleTable::Visit visit(*visitor, comm);
    if (visit) [[likely]] {
      try {
        const Poll poll = request.collective == Collective::SendRecv ? visit->messageAgain(request) : visit->runAgain(request);
        if (poll == Poll::Ready) [[likely]]
          return ncclSuccess;
        if (poll == Poll::Pending) return finishAgain(CallRequest(request), *visit);
      } catch (const std::bad_alloc&) {
        return report(request.function, Status(Code::SystemError, "out of memory"));
      } catch (...) {  // nothing leaves through the C interface
        return guard(request.function, []() -> Status { throw; });
      }
    }
  }
  if (request.collective == Collective::SendRecv && stream == nullptr && addAgain(request, comm)) return ncclSuccess;
  return runAny(CallRequest(request), comm, stream);  // copies: nobody else sees the original, which so need not lie in memory before
}

}  // namespace
}  // namespace tutti::api

using tutti::Collective;
using tutti::api::run;

extern "C" ncclResult_t pncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                                       ncclComm_t comm, cudaStream_t stream) {
  return run({"ncclAllReduce", Collective::AllReduce, sendbuff, recvbuff, count, datatype, op}, comm, stream);
}
TUTTI_WEAK_TWIN(ncclAllReduce);

extern "C" ncclResult_t pncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root,
                                    ncclComm_t comm, cudaStream_t stream) {
  return run({"ncclReduce", Collective::Reduce, sendbuff, recvbuff, count, datatype, op, root}, comm, stream);
}
TUTTI_WEAK_TWIN(ncclReduce);

extern "C" ncclResult_t pncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                                       ncclComm_t comm, cudaStream_t stream) {
  return run({"ncclBroadcast", Collective::Broadcast, sendbuff, recvbuff, count, datatype, 0, root}, comm, stream);
}
TUTTI_WEAK_TWIN(ncclBroadcast);

extern "C" ncclResult_t pncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return run({"ncclBcast", Collective::Broadcast, buff, buff, count, datatype, 0, root}, comm, stream);
}
TUTTI_WEAK_TWIN(ncclBcast);

extern "C" ncclResult_t pncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op,
                                           ncclComm_t comm, cudaStream_t stream) {
  return run({"ncclReduceScatter", Collective::ReduceScatter, sendbuff, recvbuff, recvcount, datatype, op}, comm, stream);
}
TUTTI_WEAK_TWIN(ncclReduceScatter);

extern "C" ncclResult_t pncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm,
                                       cudaStream_t stream) {
  return run({"ncclAllGather", Collective::AllGather, sendbuff, recvbuff, sendcount, datatype}, comm, stream);
}
TUTTI_WEAK_TWIN(ncclAllGather);

extern "C" ncclResult_t pncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                                      cudaStream_t stream) {
  return run({"ncclAlltoAll", Collective::AllToAll, sendbuff, recvbuff, count, datatype}, comm, stream);
}
TUTTI_WEAK_TWIN(ncclAlltoAll);

extern "C" ncclResult_t pncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                                    cudaStream_t stream) {
  return run({"ncclGather", Collective::Gather, sendbuff, recvbuff, count, datatype, 0, root}, comm, stream);
}
TUTTI_WEAK_TWIN(ncclGather);

extern "C" ncclResult_t pncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                                     cudaStream_t stream) {
  return run({"ncclScatter", Collective::Scatter, sendbuff, recvbuff, count, datatype, 0, root}, comm, stream);
}
TUTTI_WEAK_TWIN(ncclScatter);

extern "C" ncclResult_t pncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                                  cudaStream_t stream) {
  return run({"ncclSend", Collective::SendRecv, sendbuff, nullptr, count, datatype, 0, peer, false}, comm, stream);
}
TUTTI_WEAK_TWIN(ncclSend);

extern "C" ncclResult_t pncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream) {
  return run({"ncclRecv", Collective::SendRecv, nullptr, recvbuff, count, datatype, 0, peer, true}, comm, stream);
}
TUTTI_WEAK_TWIN(ncclRecv);
