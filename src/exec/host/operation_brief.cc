// The calls of a brief plan: one lane, one slice and nothing lent. What each step needs is kept from call to call, and values that travel
// in the heads of messages are moved without the general step. Wherever such a call cannot go on, goOn() leaves advance()'s own state.
#include <algorithm>

#include "core/short_copy.h"
#include "exec/host/operation.h"
#include "exec/host/wait.h"

namespace tutti::exec::host {

using algo::Buffer;
using algo::Kind;
using transport::local::kInlineBytes;
using transport::local::RecvEnd;
using transport::local::SendEnd;
using transport::local::SlotHead;

void Operation::layOutBriefly() {
  brief_.clear();
  if (lanes_.size() != 1 || plan_->geometry.slices != 1 || lanes_[0].steps->steps.empty()) return;
  const BoundLane& lane = *lanes_[0].steps;
  std::vector<BriefStep> brief;
  for (const BoundStep& step : lane.steps) {
    BriefStep& b = brief.emplace_back();
    b.step = &step;
    b.range = rangeOf(lanes_[0], step);
    b.bytes = b.range.elems * plan_->elementBytes;
    if (plan_->lends && step.kind == Kind::Store && b.bytes > std::min(kEagerBytes, step.window->cellBytes)) return;
    b.from = b.range.begin * plan_->elementBytes;
    b.to = step.dst.buffer == Buffer::None ? 0 : placeBytes(step, lanes_[0], b.range);
    const int numSources = step.numFrom + (step.src.buffer != Buffer::None ? 1 : 0);
    b.isMove = step.kind == Kind::Pipe && !step.reduce && numSources == 1 && b.bytes <= kInlineBytes;
    b.isFromIn = step.src.buffer == Buffer::In;
    b.writes = step.dst.buffer != Buffer::None;
    b.numTo = step.numTo;
    b.targets = lane.targets.data() + step.firstTo;
    if (step.numFrom == 0) continue;
    b.source = lane.sources[step.firstFrom].end;
    b.sender = lane.sources[step.firstFrom].rank;
  }
  brief_ = std::move(brief);  // only now: rangeOf() looks at it
}

bool Operation::runAgain(const void* in, void* out, uint64_t signature, uint64_t windowEpoch, int32_t looks) {
  in_ = static_cast<const std::byte*>(in);
  out_ = static_cast<std::byte*>(out);
  signature_ = signature;
  windowEpoch_ = windowEpoch;
  looks_ = looks;
  Lane& lane = lanes_.front();
  lane.slice = 0;
  bool movedAll = true;
  const BriefStep* const first = brief_.data();
  const BriefStep* const end = first + brief_.size();
  for (const BriefStep* step = first; step != end; ++step) {
    if (!(step->isMove ? move(*step) : run(lane, *step->step))) [[unlikely]] {
      briefDone_ = static_cast<uint32_t>(step - first);
      return false;
    }
    movedAll = movedAll && step->isMove;
  }
  if (movedAll) return true;
  briefDone_ = static_cast<uint32_t>(brief_.size());
  for (SendEnd* sendEnd : lane.steps->sendEnds)
    if (!sendEnd->drained()) return false;  // a message that was lent: advance() waits for it
  if (plan_->usesWindow) prepareCells();
  return true;
}

void Operation::goOn() {
  Lane& lane = lanes_.front();
  const bool isThrough = briefDone_ == brief_.size();
  lane.next = isThrough ? 0 : briefDone_;
  lane.slice = isThrough ? 1 : 0;
  lane.given = 0;
  lane.finished = false;
  unfinished_ = 1;
  moved_ = briefDone_ > 0;
  isExported_ = false;
  giveBack();
}

void Operation::giveBack() {
  for (const BriefStep& step : brief_)
    if (step.source != nullptr) step.source->giveBack();
}

/// runPipe() for a value that comes from one place and travels in heads.
inline bool Operation::move(const BriefStep& step) {
  RecvEnd* const from = step.source;
  if (from != nullptr && !soon(looks_, [from] { return from->ready(); })) return false;
  for (int i = 0; i < step.numTo; ++i)
    if (!step.targets[i]->ready()) return false;

  const std::byte* value = (step.isFromIn ? in_ : out_) + step.from;
  if (from != nullptr) {
    const SlotHead& head = from->head();
    if (!acceptCall(head.signature, step.sender) || !acceptSize(head.bytes, step.sender, step.bytes)) return false;
    value = head.inlineData;
  }
  if (step.writes) {
    std::byte* const to = out_ + step.to;
    if (to != value) copyShort(to, value, step.bytes);
    value = to;
  }
  for (int i = 0; i < step.numTo; ++i) step.targets[i]->pushInline(signature_, value, step.bytes);
  if (from != nullptr) from->releaseLater();
  return true;
}

}  // namespace tutti::exec::host
