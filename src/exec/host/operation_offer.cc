// Where messages are wanted that a network brings: told ahead, so that they come straight to the output. With several streams a message is
// received by several threads; to copy it out of its slot would be one thread's work.
#include <algorithm>
#include <functional>
#include <limits>

#include "exec/host/operation.h"

namespace tutti::exec::host {
namespace {

using algo::Buffer;
using algo::Kind;

/// What is shorter is in the cache when it is copied, which takes no longer than to offer a place.
constexpr uint64_t kLeastOffered = 16384;

/// Whether `bytes` from each address on have nothing in common.
bool areApart(const std::byte* a, const std::byte* b, uint64_t bytes) {
  const auto left = reinterpret_cast<uint64_t>(a);
  const auto right = reinterpret_cast<uint64_t>(b);
  return left + bytes <= right || right + bytes <= left;
}

}  // namespace

/// Whether the step puts what it receives into the output as it is.
bool Operation::isWanted(const BoundStep& step) const {
  return step.kind == Kind::Pipe && step.numFrom == 1 && !step.reduce && step.src.buffer == Buffer::None &&
         step.dst.buffer != Buffer::None;
}

void Operation::layOutOffers() {
  wanted_.clear();
  brief_.clear();  // rangeOf() would look at it
  for (const Lane& lane : lanes_) {
    const BoundLane& bound = *lane.steps;
    const size_t first = wanted_.size();
    for (uint32_t s = 0; s < bound.steps.size(); ++s) {
      const BoundStep& step = bound.steps[s];
      for (int i = 0; step.kind == Kind::Pipe && i < step.numFrom; ++i) {
        transport::local::RecvEnd* const end = bound.sources[step.firstFrom + static_cast<uint32_t>(i)].end;
        if (!end->takesOffers()) continue;
        const auto ofLane = wanted_.begin() + static_cast<std::ptrdiff_t>(first);
        auto found = std::find_if(ofLane, wanted_.end(), [&](const Wanted& wanted) { return wanted.end == end; });
        if (found == wanted_.end()) found = wanted_.insert(found, {end, &bound, lane.channel, {}});
        found->steps.push_back(s);
      }
    }
    const auto isWorthwhile = [&](const Wanted& wanted) {
      return std::any_of(wanted.steps.begin(), wanted.steps.end(), [&](uint32_t s) {
        return isWanted(bound.steps[s]) && rangeOf(lane, bound.steps[s]).elems * plan_->elementBytes >= kLeastOffered;
      });
    };
    wanted_.erase(std::remove_if(wanted_.begin() + static_cast<std::ptrdiff_t>(first), wanted_.end(), std::not_fn(isWorthwhile)),
                  wanted_.end());
  }
}

/// A place may be written long before its step's turn. That is no sooner than the call's data allows: what comes is made of everything
/// that earlier steps read there, but for an exchange in place, whose messages know nothing of each other.
void Operation::beginOffers() {
  const uint64_t bytes = plan_->geometry.totalElems * plan_->elementBytes;
  const bool may = plan_->collective != Collective::AllToAll || areApart(in_, out_, bytes);
  for (Wanted& wanted : wanted_) {
    wanted.before = wanted.end->received();
    wanted.next = may ? 0 : std::numeric_limits<uint64_t>::max();
    offer(wanted);
  }
}

void Operation::offerAhead(const Lane& lane, const transport::local::RecvEnd& end) {
  for (Wanted& wanted : wanted_)
    if (wanted.lane == lane.steps && wanted.end == &end) return offer(wanted);
}

/// For as many of the call's messages as may be under way.
void Operation::offer(Wanted& wanted) {
  const uint64_t ofSlice = wanted.steps.size();
  const uint64_t all = ofSlice * static_cast<uint64_t>(plan_->geometry.slices);
  const uint64_t most = std::min(all, wanted.end->received() - wanted.before + wanted.end->slots());
  Lane lane;
  lane.steps = wanted.lane;
  lane.channel = wanted.channel;
  for (; wanted.next < most; ++wanted.next) {
    const BoundStep& step = wanted.lane->steps[wanted.steps[wanted.next % ofSlice]];
    if (!isWanted(step)) continue;
    lane.slice = static_cast<int32_t>(wanted.next / ofSlice);
    const algo::Range range = rangeOf(lane, step);
    const uint64_t bytes = range.elems * plan_->elementBytes;
    if (bytes >= kLeastOffered) wanted.end->offer(wanted.before + wanted.next + 1, placeOf(step, lane, range), bytes);
  }
}

}  // namespace tutti::exec::host
