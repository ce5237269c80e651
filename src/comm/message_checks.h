// Sizes of messages between GPUs, compared by the host when they are launched: the other side of each may still come, or have come.
//
// Owner: the communicator's rank; used by the thread that uses the communicator.
// 1. The messages of a pair and direction are numbered in the order of the program's calls on either side, however a group orders its
//    launches.
// 2. A rank that has captured a message of a pair and direction posts no further one: how often a graph is launched, and when, nobody here
//    sees. What it had posted is taken back, so no message is ever compared with another one.
// 3. A message costs a store and a load, a launch with messages one fence; nothing is allocated after the first.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/call.h"
#include "core/status.h"
#include "transport/device/page.h"
#include "transport/local/hub.h"

namespace tutti::comm {

struct DeviceCall;

class MessageChecks {
 public:
  /// `isOn`: else messages are numbered and no more.
  MessageChecks(std::shared_ptr<transport::local::Hub> hub, Rank rank, bool isOn);

  /// Numbers those messages that it has not seen yet, and compares them. InvalidUsage: a peer has made another call, and the communicator
  /// has its verdict.
  Status look(std::span<DeviceCall> calls, const transport::device::Page& page, bool isCaptured);

 private:
  /// Of a peer and direction.
  struct Side {
    uint64_t count = 0;
    bool isCaptured = false;
  };
  transport::device::MessageBook& bookOf(const Call& call, const transport::device::Page& page) const;
  Status compare(const Call& own, const transport::device::Page& page) const;

  std::shared_ptr<transport::local::Hub> hub_;
  const Rank rank_;
  const bool isOn_;
  std::vector<Side> sides_[2];  // by peer: messages to it, and from it
};

}  // namespace tutti::comm
