// The unique id of a communicator, from rank 0 to all other processes of a job, without MPI.
//
// Called once by each process, by one thread. How it travels depends on the launcher:
//   tutti run                     the socket that the process inherited; `tutti run` passes it on (launch/by_parent.h)
//   MPICH and others with PMI-1   the launcher's own key-value store (launch/by_pmi.h)
//   torchrun, Open MPI, Slurm     a connection to rank 0: within a host an abstract Unix socket, else TCP (launch/by_socket.h)
// 1. With NCCL_COMM_ID nothing travels: every process makes the id, which the library derives from that address.
// 2. Every wait ends at the deadline, with an error that says what was waited for.
#pragma once

#include <chrono>
#include <functional>

#include "core/status.h"
#include "launch/rank.h"
#include "nccl.h"

namespace tutti::launch {

/// Makes the id; called in rank 0's process, or in all of them with NCCL_COMM_ID.
using MakeId = std::function<Result<ncclUniqueId>()>;

/// `timeout` of zero: none. TUTTI_JOB_SECRET, where it is set, authenticates and encrypts what travels over sockets.
Result<ncclUniqueId> exchangeId(const Standing& standing, const Environment& environment, const MakeId& makeId,
                                std::chrono::milliseconds timeout);

}  // namespace tutti::launch
