// The exchange over sockets: rank 0 listens on an address of the job, the others try the addresses until one answers with its key.
//
// One thread in each process. A conversation, with sealed messages (launch/seal.h) in brackets:
//   rank r to 0: magic, nonce · 0 to r: nonce · r to 0: [rank, ranks] · 0 to r: [verdict, id] · r to 0: [got it]
// 1. A stranger, a slow peer or a process of another job is dropped and disturbs nobody; there are at most kMostOpen at a time.
// 2. Rank 0 returns when every rank has said that it got the id. A rank that comes again afterwards is refused: it is of a run that
//    began after an earlier one had failed in part.
#pragma once

#include <string>

#include "launch/descriptor.h"
#include "launch/exchange.h"

namespace tutti::launch {

inline constexpr size_t kMostOpen = 128;

Result<ncclUniqueId> exchangeBySocket(const Standing& standing, const std::string& secret, const MakeId& makeId, Deadline deadline);

/// Rank 0's part, and that of the others.
Status giveId(const Standing& standing, const std::string& secret, const ncclUniqueId& id, Deadline deadline);
Result<ncclUniqueId> takeId(const Standing& standing, const std::string& secret, Deadline deadline);

}  // namespace tutti::launch
