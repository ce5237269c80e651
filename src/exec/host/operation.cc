#include "exec/host/operation.h"

#include <algorithm>
#include <cstring>

#include "core/format.h"
#include "core/prefetch.h"
#include "exec/host/signature.h"
#include "exec/host/wait.h"

namespace tutti::exec::host {
namespace {

using algo::Buffer;
using algo::Kind;
using transport::local::CellHead;
using transport::local::kInlineBytes;
using transport::local::SendEnd;
using transport::local::SlotHead;

/// Whether a lane only copies what its rank has for itself: nobody waits for that, so that it comes last.
bool isAlone(const BoundLane& lane) {
  return std::all_of(lane.steps.begin(), lane.steps.end(),
                     [](const BoundStep& step) { return step.kind == Kind::Pipe && step.numFrom == 0 && step.numTo == 0; });
}

/// A lane that nothing holds up pauses here, so that the driver looks at errors and at its other lanes.
constexpr int32_t kSlicesAtOnce = 16;

}  // namespace

void Operation::start(const PlannedCall& call) {
  if (plan_ != call.plan) {
    plan_ = call.plan;
    layOutLanes();
  }
  const HostPlan& plan = *plan_;
  stores_.isPast = plan.pastCache;
  if (plan.cacheChoice != nullptr) {
    stores_ = plan.cacheChoice->begin();
    beganNs_ = transport::local::StoreChoice::nowNs();
  }
  unfinished_ = 0;
  for (Lane& lane : lanes_) {
    lane.slice = lane.given = 0;
    lane.next = 0;
    lane.finished = lane.steps->steps.empty();
    unfinished_ += lane.finished ? 0 : 1;
  }
  in_ = static_cast<const std::byte*>(call.in);
  out_ = static_cast<std::byte*>(call.out);
  signature_ = call.signature;
  windowEpoch_ = call.windowEpoch;
  reduction_ = plan.reduction;
  reduction_.scaling.factor = call.factor;
  if (call.factorSource != nullptr) std::memcpy(&reduction_.scaling.factor, call.factorSource, plan.elementBytes);
  if (!wanted_.empty()) [[unlikely]]
    beginOffers();
  exporter_ = call.exporter != nullptr && call.exporter->timesTaken() == call.takenBefore ? call.exporter : nullptr;
  hasOffered_ = false;
  moved_ = false;
  published_ = 0;
  if (!status_.ok()) [[unlikely]]
    status_ = Status();
  foreign_.reset();
  if (plan.lends) std::fill(lent_.begin(), lent_.end(), 0);  // else they are, since the lanes were laid out
}

void Operation::layOutLanes() {
  lanes_.clear();
  for (size_t c = 0; c < plan_->channels.size(); ++c) {
    const auto first = static_cast<uint32_t>(lanes_.size());
    for (const BoundLane& bound : plan_->channels[c]) {
      Lane lane;
      lane.steps = &bound;
      lane.channel = static_cast<int32_t>(c);
      lane.firstOfChannel = first;
      lanes_.push_back(lane);
    }
  }
  turns_.clear();
  for (const bool alone : {false, true})
    for (uint32_t at = 0; at < lanes_.size(); ++at)
      if (isAlone(*lanes_[at].steps) == alone) turns_.push_back(at);
  if (plan_->usesWindow) cells_.resize(static_cast<size_t>(plan_->ranks));
  lent_.assign(plan_->windows.size(), 0);
  placedAt_.assign(plan_->places ? plan_->windows.size() : 0, 0);
  layOutOffers();
  layOutBriefly();
}

Poll Operation::advance() {
  moved_ = false;
  for (const uint32_t at : turns_) {
    Lane& lane = lanes_[at];
    if (lane.finished) continue;
    if (advanceLane(lane)) {
      lane.finished = true;
      moved_ = true;
      --unfinished_;
    }
    if (!status_.ok()) [[unlikely]]
      return Poll::Failed;
  }
  if (unfinished_ > 0) return Poll::Pending;
  if (plan_->cacheChoice != nullptr) plan_->cacheChoice->end(stores_, transport::local::StoreChoice::nowNs() - beganNs_);
  hasOffered_ = false;  // everybody has written
  if (plan_->usesWindow && plan_->geometry.slices == 1) brief_.empty() ? prepareCells() : prepareCellsBriefly();
  return Poll::Ready;
}

/// True when the lane has run its whole program and nobody reads its input by reference any more.
bool Operation::advanceLane(Lane& lane) {
  if (isBrief()) return advanceBriefly(lane);
  const BoundLane& bound = *lane.steps;
  for (int32_t budget = kSlicesAtOnce; lane.slice < plan_->geometry.slices; --budget) {
    if (budget == 0) return false;
    while (lane.next < bound.steps.size()) {
      if (!run(lane, bound.steps[lane.next])) {
        help(bound);
        return false;
      }
      moved_ = true;
      ++lane.next;
    }
    lane.next = 0;
    ++lane.slice;
  }
  if (isDrained(bound) && isReturned()) return true;
  help(bound);
  return false;
}

/// Whether every message that the lane has lent has been read.
bool Operation::isDrained(const BoundLane& bound) {
  return std::all_of(bound.sendEnds.begin(), bound.sendEnds.end(), [](SendEnd* end) { return end->drained(); });
}

/// Whether every peer has read what it was lent.
bool Operation::isReturned() const {
  bool isReturned = true;
  forEachBorrower([&](Rank) { isReturned = false; });
  return isReturned;
}

/// Carries the step out if nothing that it needs is missing; otherwise leaves everything as it was and returns false.
bool Operation::run(const Lane& lane, const BoundStep& step) {
  switch (step.kind) {
    case Kind::Pipe: return runPipe(lane, step);
    case Kind::Store: return runStore(lane, step);
    case Kind::Arrive:
      arrive(step.window->head(epochOf(lane, step), plan_->rank), epochOf(lane, step));
      return true;
    case Kind::Await: return runAwait(lane, step);
    case Kind::LoadReduce: return runLoadReduce(lane, step);
    case Kind::Load: return runLoad(lane, step);
    case Kind::Give:
    case Kind::Take: return handOver(lane, step);
  }
  return false;
}

bool Operation::runPipe(const Lane& lane, const BoundStep& step) {
  const Source* const from = lane.steps->sources.data() + step.firstFrom;
  SendEnd* const* const to = lane.steps->targets.data() + step.firstTo;
  for (int i = 0; i < step.numFrom; ++i)
    if (!soon(looks_, [end = from[i].end] { return end->ready(); })) return false;
  const algo::Range range = rangeOf(lane, step);
  const uint64_t bytes = range.elems * plan_->elementBytes;
  for (int i = 0; i < step.numTo; ++i)
    if (!to[i]->ready(bytes)) return false;

  const void* sources[1 + kMostLinks];
  int numSources = 0;
  const bool ownFirst = step.src.buffer != Buffer::None;
  if (ownFirst) sources[numSources++] = source(step.src, range);
  for (int i = 0; i < step.numFrom; ++i) {
    const SlotHead& head = from[i].end->head();
    if (!acceptCall(head.signature, from[i].rank) || !acceptSize(head.bytes, from[i].rank, bytes)) return false;
    const std::byte* payload = from[i].end->payload();
    if (head.lent == transport::local::kInLead && from[i].lead != nullptr) {
      payload = from[i].lead->staging(from[i].end->received(), bytes);
    } else if (head.lent != 0) {
      std::byte* const place = step.reduce || step.dst.buffer == Buffer::None ? nullptr : placeOf(step, lane, range);
      const bool isShared = place != nullptr && plan_->copies != 0 && bytes >= transport::local::SharedCopy::kLeastBytes &&
                            from[i].neighbour != nullptr && from[i].neighbour->isWatchable();
      payload = isShared ? shareCopy(from[i], bytes, place)
                         : lentBy(from[i].neighbour, head.lent, bytes, place, static_cast<size_t>(i));
      if (payload == nullptr) return false;
    }
    sources[numSources++] = payload;
  }

  // A rank's own input is sent before it is copied, as others wait for it, and from where it is: lines of the output that a reader has as
  // well are slow to write in the next call.
  const bool isOwn = ownFirst && numSources == 1 && !step.reduce;
  std::byte* const dst = step.dst.buffer == Buffer::None ? nullptr : placeOf(step, lane, range);
  // `stable` is where the value to send lies until the operation ends, if it lies anywhere in the caller's memory.
  const std::byte* stable = nullptr;
  if (isOwn || (step.numFrom == 0 && dst == nullptr && !reduction_.scaling.hasFactor)) {
    stable = static_cast<const std::byte*>(sources[0]);
  } else if (dst != nullptr && step.reduce) {
    combine(dst, sources, numSources, range.elems, ownFirst, true);
    stable = dst;
  } else if (dst != nullptr) {
    const bool isFresh = from[0].end->head().isFresh();
    if (bytes > 0 && dst != sources[0]) (isFresh ? copyClaimed : copyBytes)(dst, sources[0], bytes, stores_.isPast && step.numTo == 0);
    stable = dst;
  }

  const std::byte* value = stable;
  Lead lead{step.fansOut ? to[0]->staging(bytes) : nullptr};  // before that end moves on
  for (int i = 0; i < step.numTo; ++i) {
    if (value == nullptr) {  // combine straight into the first slot; further ones get a copy
      SendEnd& end = *to[i];
      std::byte* space = bytes <= kInlineBytes ? end.head().inlineData : end.staging(bytes);
      combine(space, sources, numSources, range.elems, ownFirst, false);
      value = space;
    }
    send(*to[i], stable, value, bytes, lead);
  }
  if (isOwn && dst != nullptr && dst != sources[0] && bytes > 0) copyBytes(dst, sources[0], bytes, stores_.isPast);
  for (int i = 0; i < step.numFrom; ++i) from[i].end->release();
  for (int i = 0; !wanted_.empty() && i < step.numFrom; ++i) offerAhead(lane, *from[i].end);
  return true;
}

bool Operation::runAwait(const Lane& lane, const BoundStep& step) {
  const CellHead& head = step.window->head(epochOf(lane, step), step.peer);
  const uint64_t epoch = epochOf(lane, step);
  // acquire: pairs with the release of Arrive
  if (!soon(looks_, [&head, epoch] { return head.epoch.load(std::memory_order_acquire) == epoch; })) return false;
  return acceptCall(head.signature, step.peer);
}

bool Operation::runLoad(const Lane& lane, const BoundStep& step) {
  const algo::Range range = rangeOf(lane, step);
  const uint64_t bytes = range.elems * plan_->elementBytes;
  const uint64_t epoch = epochOf(lane, step);
  const CellHead& head = step.window->head(epoch, step.peer);
  if (!acceptSize(head.bytes, step.peer, bytes)) return false;
  std::byte* const to = destination(range);
  if (isPlaced(step, epoch, to)) {
    if (!loadRest(step, epoch, to, bytes)) return false;
  } else {
    const std::byte* content = contentOf(step, epoch, step.peer, bytes, to);
    if (content == nullptr) return false;
    if (bytes > 0 && content != to) copyBytes(to, content, bytes, stores_.isPast);
  }
  // release: the writer may change what it lent; pairs with isReturned()
  if (head.lent != 0) step.window->returned[step.peer.value].value.store(epoch, std::memory_order_release);
  return true;
}

bool Operation::runLoadReduce(const Lane& lane, const BoundStep& step) {
  const algo::Range range = rangeOf(lane, step);
  const uint64_t bytes = range.elems * plan_->elementBytes;
  const uint64_t epoch = epochOf(lane, step);
  for (int32_t r = 0; r < plan_->ranks; ++r) {
    if (!acceptSize(step.window->head(epoch, Rank(r)).bytes, Rank(r), bytes)) return false;
    const std::byte* content = contentOf(step, epoch, Rank(r), bytes, nullptr);
    if (content == nullptr) return false;
    cells_[static_cast<size_t>(r)] = content;
  }
  if (plan_->places && findTargets(step, epoch, bytes)) {
    combineToAll(range);
  } else {
    combine(destination(range), cells_.data(), plan_->ranks, range.elems, false, true);
  }
  for (int32_t r = 0; plan_->lends && r < plan_->ranks; ++r)
    if (step.window->head(epoch, Rank(r)).lent != 0)  // release: as in runLoad
      step.window->returned[r].value.store(epoch, std::memory_order_release);
  return true;
}

bool Operation::handOver(const Lane& lane, const BoundStep& step) {
  if (step.kind == Kind::Take) return lane.given > lane.slice;
  ++lanes_[lane.firstOfChannel + static_cast<uint32_t>(step.lane)].given;
  return true;
}

bool Operation::refuseCall(uint64_t signature, Rank peer) {
  foreign_ = signature;
  status_ = mismatch(plan_->rank, signature_, peer, signature);
  return false;
}

bool Operation::refuseSize(uint64_t bytes, Rank peer, uint64_t expectedBytes) {
  status_ = error(Code::InvalidUsage,
                  "rank {} sent {} bytes where rank {} expects {} in {}: do both have the same number of channels, TUTTI_SLICE_BYTES and "
                  "NCCL_BUFFSIZE?",
                  peer.value, bytes, plan_->rank.value, expectedBytes, describeSignature(signature_));
  return false;
}

/// dst = the sources combined in order. `ownFirst`: the first is this rank's raw contribution. `last`: the result is complete.
void Operation::combine(std::byte* dst, const void* const* sources, int numSources, uint64_t elems, bool ownFirst, bool last) const {
  if (elems == 0) return;
  const Scaling& scaling = reduction_.scaling;
  const bool scales = ownFirst && scaling.hasFactor;
  const bool divides = last && scaling.divisor != 1;
  if (numSources == 1 && !scales && !divides) {
    if (dst != sources[0]) copyBytes(dst, sources[0], elems * plan_->elementBytes, false);
    return;
  }
  plan_->reduceFn(dst, sources, numSources, elems, reduction_, scales ? 1U : 0U, last);
}

algo::Range Operation::rangeOf(const Lane& lane, const BoundStep& step) const {
  if (!brief_.empty()) return brief_[static_cast<size_t>(&step - lane.steps->steps.data())].range;
  // A step that only passes on what it receives names the chunk of that size as its source, without a buffer.
  const algo::ChunkRef ref = step.src.buffer != Buffer::None || step.dst.buffer == Buffer::None ? step.src : step.dst;
  return plan_->geometry.range(ref.chunk, lane.channel, lane.slice);
}

const std::byte* Operation::source(algo::ChunkRef ref, const algo::Range& range) const {
  const std::byte* base = ref.buffer == Buffer::In ? in_ : out_;
  return base + range.begin * plan_->elementBytes;
}

std::byte* Operation::placeOf(const BoundStep& step, const Lane& lane, const algo::Range& range) const {
  return out_ + placeBytes(step, lane, range);
}

uint64_t Operation::placeBytes(const BoundStep& step, const Lane& lane, const algo::Range& range) const {
  const bool isSame = step.src.buffer == Buffer::None || step.dst.chunk == step.src.chunk;
  return (isSame ? range : plan_->geometry.range(step.dst.chunk, lane.channel, lane.slice)).begin * plan_->elementBytes;
}

std::byte* Operation::destination(const algo::Range& range) const { return out_ + range.begin * plan_->elementBytes; }

}  // namespace tutti::exec::host
