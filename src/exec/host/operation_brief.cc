// The calls of a brief plan: one lane, one slice and nothing lent. What each step needs is kept from call to call, and values that travel
// in the heads of messages are moved without the general step. The state it leaves is advance()'s own, which goes on wherever this stops.
#include <cstring>

#include "exec/host/operation.h"
#include "exec/host/wait.h"

namespace tutti::exec::host {

using algo::Buffer;
using algo::Kind;
using transport::local::kInlineBytes;
using transport::local::SendEnd;
using transport::local::SlotHead;

void Operation::layOutBriefly() {
  brief_.clear();
  if (lanes_.size() != 1 || plan_->geometry.slices != 1 || plan_->lends || lanes_[0].steps->steps.empty()) return;
  std::vector<BriefStep> brief;
  for (const BoundStep& step : lanes_[0].steps->steps) {
    BriefStep& b = brief.emplace_back();
    b.range = rangeOf(lanes_[0], step);
    b.bytes = b.range.elems * plan_->elementBytes;
    b.from = b.range.begin * plan_->elementBytes;
    b.to = step.dst.buffer == Buffer::None ? 0 : placeBytes(step, lanes_[0], b.range);
    const int numSources = step.numFrom + (step.src.buffer != Buffer::None ? 1 : 0);
    b.isMove = step.kind == Kind::Pipe && !step.reduce && numSources == 1 && b.bytes <= kInlineBytes;
  }
  brief_ = std::move(brief);  // only now: rangeOf() looks at it
}

Poll Operation::startAndAdvance(const PlannedCall& call) {
  if (brief_.empty() || plan_ != call.plan || call.factorSource != nullptr || !status_.ok()) {
    start(call);
    return advance();
  }
  in_ = static_cast<const std::byte*>(call.in);
  out_ = static_cast<std::byte*>(call.out);
  signature_ = call.signature;
  windowEpoch_ = call.windowEpoch;
  reduction_.scaling.factor = call.factor;
  isExported_ = call.isExported;
  foreign_.reset();
  moved_ = false;
  unfinished_ = 1;
  Lane& lane = lanes_.front();
  lane.slice = lane.given = 0;
  lane.finished = false;
  const BoundLane& bound = *lane.steps;
  for (lane.next = 0; lane.next < brief_.size(); ++lane.next) {
    const BoundStep& step = bound.steps[lane.next];
    const BriefStep& brief = brief_[lane.next];
    if (!(brief.isMove ? move(bound, step, brief) : run(lane, step))) return status_.ok() ? Poll::Pending : Poll::Failed;
    moved_ = true;
  }
  lane.next = 0;
  lane.slice = 1;
  for (SendEnd* end : bound.sendEnds)
    if (!end->drained()) return Poll::Pending;  // an earlier call lent something: advance() waits for it
  lane.finished = true;
  unfinished_ = 0;
  if (plan_->usesWindow) prepareCells();
  return Poll::Ready;
}

/// runPipe() for a value that comes from one place and travels in heads.
bool Operation::move(const BoundLane& bound, const BoundStep& step, const BriefStep& brief) {
  const Source* const from = step.numFrom != 0 ? &bound.sources[step.firstFrom] : nullptr;
  SendEnd* const* const to = bound.targets.data() + step.firstTo;
  if (from != nullptr && !soon(looks_, [end = from->end] { return end->ready(); })) return false;
  for (int i = 0; i < step.numTo; ++i)
    if (!to[i]->ready()) return false;

  const std::byte* value = (step.src.buffer == Buffer::In ? in_ : out_) + brief.from;
  if (from != nullptr) {
    const SlotHead& head = from->end->head();
    if (!acceptCall(head.signature, from->rank) || !acceptSize(head.bytes, from->rank, brief.bytes)) return false;
    value = head.inlineData;
  }
  if (step.dst.buffer != Buffer::None) {
    std::byte* const dst = out_ + brief.to;
    if (brief.bytes > 0 && dst != value) std::memmove(dst, value, brief.bytes);
    value = dst;
  }
  for (int i = 0; i < step.numTo; ++i) {
    SlotHead& head = to[i]->head();
    head.signature = signature_;
    head.bytes = brief.bytes;
    head.lent = 0;
    if (brief.bytes > 0) std::memcpy(head.inlineData, value, brief.bytes);
    to[i]->push(false);
  }
  if (from != nullptr) from->end->release();
  return true;
}

}  // namespace tutti::exec::host
