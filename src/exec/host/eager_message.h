// Messages that are copied into a slot, where nobody has to be waited for: passed without a work, as calls that are made again are.
//
// Owner: the communicator; used by the thread that makes its calls, while no work of the rank is under way and nothing is owed (Turn).
// 1. Either all of the message is passed, or nothing has been done and it is to be made in the ordinary way.
#pragma once

#include <cstdint>

#include "exec/host/work.h"

namespace tutti::exec::host {

/// This rank's end of the pipe that a plan's only message goes through. Neither: the message is longer than kEagerBytes or a slot, comes in
/// several slices, or the communicator has ranks on other hosts, whose network wants to be driven.
struct EagerEnd {
  transport::local::SendEnd* send = nullptr;
  transport::local::RecvEnd* receive = nullptr;
  explicit operator bool() const { return send != nullptr || receive != nullptr; }
};
EagerEnd eagerEndOf(const HostPlan& plan, const Turn& turn);

/// Passes the message of `call`, whose signature and event are set. False: there is no slot; nothing has come within a microsecond or two,
/// or at once where ranks share cores; what has come is another call's; the rank's latch has tripped; or nothing has been counted yet in
/// this direction, of messages to whomever.
bool passEagerly(Turn& turn, const EagerEnd& end, const PlannedCall& call);

}  // namespace tutti::exec::host
