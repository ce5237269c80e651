// What a kernel's wait that gave up has left (exec/cuda/verdict.h), as the verdict of the communicator tells it. And what a launch is
// called, so that its calls can be found again.
// Any thread of any process of the host; nothing but the page is looked at.
#pragma once

#include <span>
#include <string>

#include "exec/host/verdict.h"
#include "transport/device/page.h"

namespace tutti::comm {

/// A wait that gave up.
struct GivenUp {
  Rank rank;
  exec::host::Outcome outcome;
  transport::local::RankWait wait;  ///< the calls of its launch, as far as they are known: of messages those that it waited in
  int64_t waitedMs = 0;
};
/// Of a wait for another of the `ranks` also where the waits end: the ranks that wait themselves learn within some 0.2 ms that they are to
/// stop, and get 50 ms to tell for whom they waited.
GivenUp readVerdict(const exec::cuda::Verdict& verdict, const transport::device::Page& page, int32_t ranks);

/// Of a wait that goes on: "rank 1 has waited for 10000 ms in AllReduce #5 …: its kernel waits for …".
std::string describeLasting(const exec::cuda::Verdict& wait, const transport::device::Page& page);

/// A launch of collectives: of one call its signature, of several what differs where any of them does. The same on all ranks that agree.
uint64_t signatureOf(std::span<const Call* const> calls);
/// A launch of messages, number `number` of its rank.
uint64_t signatureOfMessages(uint64_t number);

}  // namespace tutti::comm
