#include "exec/host/eager_message.h"

#include <cstring>

#include "exec/host/reduce/reduce.h"
#include "exec/host/wait.h"

namespace tutti::exec::host {
namespace {

using transport::local::kShortBytes;
using transport::local::RecvEnd;
using transport::local::SendEnd;
using transport::local::SlotHead;

/// A partner that calls at the same time is some hundred nanoseconds ahead or behind.
constexpr int32_t kEagerLooks = 400;

bool send(SendEnd& end, const PlannedCall& call) {
  const uint64_t bytes = call.call.count;
  if (!end.ready(bytes)) return false;
  if (bytes <= kShortBytes) {
    end.pushShort(call.signature, call.in, bytes);
    return true;
  }
  SlotHead& head = end.head();
  head.signature = call.signature;
  head.bytes = bytes;
  head.lent = 0;
  head.wentPast = 0;
  std::memcpy(end.staging(bytes), call.in, bytes);
  end.push(false);
  return true;
}

bool receive(RecvEnd& end, const PlannedCall& call, int32_t looks) {
  if (!soon(looks, [&end] { return end.ready(); })) return false;
  const SlotHead& head = end.head();
  if (head.signature != call.signature || head.bytes != call.call.count || head.lent != 0) return false;
  if (head.bytes > 0) (head.isFresh() ? copyClaimed : copyBytes)(call.out, end.payload(), head.bytes, false);
  end.release();
  return true;
}

}  // namespace

EagerEnd eagerEndOf(const HostPlan& plan, const Turn& turn) {
  const uint64_t bytes = plan.geometry.totalElems * plan.elementBytes;
  if (plan.collective != Collective::SendRecv || bytes > kEagerBytes || plan.geometry.slices != 1 || turn.hub->remote() != nullptr)
    return {};
  for (const BoundLane& lane : plan.channels.front()) {
    if (lane.steps.empty()) continue;
    const BoundStep& step = lane.steps.front();
    if (step.numTo == 1) {
      SendEnd* const end = lane.targets[step.firstTo];
      return bytes <= end->slotBytes() ? EagerEnd{end, nullptr} : EagerEnd();
    }
    if (step.numFrom == 1) return {nullptr, lane.sources[step.firstFrom].end};
  }
  return {};
}

bool passEagerly(Turn& turn, const EagerEnd& end, const PlannedCall& call) {
  const bool receives = call.call.receives;
  if (turn.checks && (receives ? turn.received : turn.sent).empty()) return false;  // counting it would take memory
  transport::local::Member& member = turn.hub->member(turn.rank);
  if (turn.checks ? !member.enter() : member.latch.tripped()) return false;
  const bool isPassed = receives ? receive(*end.receive, call, turn.isCrowded ? 1 : kEagerLooks) : send(*end.send, call);
  if (isPassed && turn.checks) {
    Call message = call.call;
    message.sequence = turn.numberMessage(message.root, receives);
    member.lastMessage.post(message);
  }
  if (isPassed) turn.record(call.event, observe::FlightKind::Finished);
  if (turn.checks) member.leave();
  return isPassed;
}

}  // namespace tutti::exec::host
