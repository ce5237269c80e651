// Communicators as the API makes and ends them, without the API: through a group, the process-wide handles, and requests.
// Owner: the test. Handles that are still live are aborted and freed with the object.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "comm/process.h"

namespace tutti::comm {

/// Takes the communicator out of its handle and frees it: what ncclCommDestroy and ncclCommAbort do.
inline Status endComm(ncclComm* handle, bool abort = false) {
  HandleTable& handles = process().handles;
  HandleTable::Use use = handles.use(handle);
  if (!use) return error(Code::InvalidArgument, "no live communicator");
  const std::unique_ptr<Communicator> comm(handles.retire(use));
  if (comm == nullptr) return error(Code::InvalidArgument, "ended already");
  if (abort) comm->abort();
  if (!abort && !comm->isFinalized()) (void)comm->finalize();
  handles.waitUnused(use);
  comm->drain();
  return {};
}

inline JoinRequest joinRequest(const UniqueIdBytes& id, int32_t ranks, int32_t rank, ncclComm** result) {
  JoinRequest request;
  request.result = result;
  request.ids = {id};
  request.ranks = ranks;
  request.rank = Rank(rank);
  request.device = rank;
  request.function = "ncclCommInitRank";
  return request;
}

class JoinedRanks {
 public:
  explicit JoinedRanks(int32_t ranks) : handles_(static_cast<size_t>(ranks)) {
    const auto id = process().bootstrap.makeId();
    Group group;
    group.start();
    for (int32_t r = 0; r < ranks; ++r)
      if (!group.add(joinRequest(*id, ranks, r, &handles_[static_cast<size_t>(r)])).ok()) ADD_FAILURE();
    const Status status = group.end();
    if (!status.ok()) ADD_FAILURE() << status.text();
  }
  ~JoinedRanks() {
    for (ncclComm* handle : handles_) (void)endComm(handle, true);
  }
  JoinedRanks(const JoinedRanks&) = delete;
  JoinedRanks& operator=(const JoinedRanks&) = delete;

  ncclComm* operator[](size_t rank) const { return handles_[rank]; }
  HandleTable::Use use(size_t rank) const { return process().handles.use(handles_[rank]); }

 private:
  std::vector<ncclComm*> handles_;
};

/// An all-reduce of int32 sums.
inline CallRequest allReduce(const std::vector<int32_t>& in, std::vector<int32_t>& out) {
  CallRequest request;
  request.function = "ncclAllReduce";
  request.collective = Collective::AllReduce;
  request.in = in.data();
  request.out = out.data();
  request.count = in.size();
  request.type = static_cast<int32_t>(DataType::I32);
  return request;
}

/// A message of int32; `receives` tells the direction, as seen from this rank.
inline CallRequest message(std::vector<int32_t>& buffer, int32_t peer, bool receives) {
  CallRequest request;
  request.function = receives ? "ncclRecv" : "ncclSend";
  request.collective = Collective::SendRecv;
  request.in = receives ? nullptr : buffer.data();
  request.out = receives ? buffer.data() : nullptr;
  request.count = buffer.size();
  request.type = static_cast<int32_t>(DataType::I32);
  request.root = peer;
  request.receives = receives;
  return request;
}

/// Makes a call as a thread does: checked now, and run, or kept for the end of the thread's group.
inline Status call(Group& group, ncclComm* handle, const CallRequest& request, std::shared_ptr<exec::host::Stream> stream = nullptr) {
  const HandleTable::Use use = process().handles.use(handle);
  if (!use) return error(Code::InvalidArgument, "no live communicator");
  auto pending = use->prepare(request);
  if (!pending) {
    group.fail(pending.error());
    return pending.error();
  }
  pending->stream = std::move(stream);
  return group.add(handle, std::move(*pending));
}

}  // namespace tutti::comm
