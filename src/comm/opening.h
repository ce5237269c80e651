// Calls of a group on GPUs on their way to their launches: what they need is opened first, which takes all ranks.
//
// Owner: the thread that launches the group, while it waits; else the communicators of the calls, whose state drives it. Any thread: one of
// those that drive it does, the others find it pending.
// 1. Every communicator of the group has offered its part before any is waited for, and all are settled before any is launched: they are
//    launched in the order of the group.
// 2. Between two looks nothing holds the communicators. One that was ended meanwhile ends the others' calls, with an error.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "comm/device_rank.h"
#include "comm/handle.h"
#include "comm/patience.h"

namespace tutti::comm {

class Opening {
 public:
  /// The calls of one communicator.
  struct Share {
    ncclComm* handle = nullptr;
    Communicator* comm = nullptr;
    std::vector<DeviceCall> calls;
  };
  explicit Opening(std::vector<Share> shares);

  /// Says to the peers where the parts are of all ranks of this thread. The communicators are in use.
  Status offer();
  /// Ready when all calls are launched. Failed: status(), and the communicators whose calls were not launched are stopped.
  Poll advance();
  /// Only after Failed.
  const Status& status() const { return status_; }

 private:
  using Uses = std::vector<HandleTable::Use>;
  Poll settleAll(const Uses& uses, Status& cause);
  Poll conclude(const Uses& uses, size_t launched, Status cause);

  std::mutex mutex_;  ///< protects what follows, but for status_ once it is over
  std::vector<Share> shares_;
  Patience patience_;
  bool isOver_ = false;
  Status status_;
};

}  // namespace tutti::comm
