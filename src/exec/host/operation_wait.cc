// What an operation waits for: the slow path of operation.cc, for those who look whether a wait can end.
#include <algorithm>

#include "core/format.h"
#include "exec/host/operation.h"

namespace tutti::exec::host {
namespace {

using algo::Kind;
using transport::local::ChainWait;
using transport::local::LaneWait;

void addOnce(std::vector<Rank>& ranks, Rank rank) {
  if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
}

/// Everybody whom the lane has to do with: also the own rank, where lanes send to each other. Steps on windows may concern anybody.
std::vector<Rank> partnersOf(const BoundLane& lane, const HostPlan& plan) {
  std::vector<Rank> partners;
  for (const Source& source : lane.sources) addOnce(partners, source.rank);
  for (const transport::local::SendEnd* end : lane.sendEnds) addOnce(partners, end->peer());
  const bool everybody = plan.usesWindow && std::any_of(lane.steps.begin(), lane.steps.end(), [](const BoundStep& step) {
                           return step.kind == Kind::Arrive || step.kind == Kind::Await;
                         });
  if (!everybody) return partners;
  partners.clear();
  for (int32_t r = 0; r < plan.ranks; ++r)
    if (Rank(r) != plan.rank) partners.emplace_back(r);
  return partners;
}

}  // namespace

void Operation::describe(ChainWait& wait) const {
  wait.slices = plan_->geometry.slices;
  wait.slice = wait.slices;
  bool found = false;
  for (const Lane& lane : lanes_) {
    wait.lanes.push_back(waitOf(lane));
    if (lane.finished || found) continue;
    found = true;
    wait.slice = lane.slice;
    wait.step = lane.next;
    wait.steps = static_cast<uint32_t>(lane.steps->steps.size());
  }
  wait.words = describeWait();
}

/// Calls `note(rank)` for every thing that the lane lacks for its next step: who is to provide it. One rank may come twice.
template <class Note>
void Operation::forEachUnmet(const Lane& lane, Note&& note) const {
  if (lane.finished) return;
  if (lane.slice >= plan_->geometry.slices) {
    for (transport::local::SendEnd* end : lane.steps->sendEnds)
      if (!end->drained()) note(end->peer());
    forEachBorrower(note);
    return;
  }
  const BoundStep& step = lane.steps->steps[lane.next];
  if (step.kind == Kind::Await) {
    const uint64_t epoch = epochOf(lane, step);
    if (arrivalOf(step, epoch, step.peer).epoch.load(std::memory_order_acquire) != epoch) note(step.peer);  // pairs with Arrive's release
  } else if (step.kind == Kind::Pipe) {
    const uint64_t bytes = rangeOf(lane, step).elems * plan_->elementBytes;
    for (uint32_t i = step.firstFrom; i < step.firstFrom + static_cast<uint32_t>(step.numFrom); ++i)
      if (const Source& source = lane.steps->sources[i]; !source.end->ready()) note(source.rank);
    for (uint32_t i = step.firstTo; i < step.firstTo + static_cast<uint32_t>(step.numTo); ++i)
      if (transport::local::SendEnd* end = lane.steps->targets[i]; !end->ready(bytes)) note(end->peer());
  }
}

bool Operation::needsNoneOf(const std::function<bool(Rank)>& isThere) const {
  for (const Lane& lane : lanes_) {
    if (lane.finished) continue;
    if (lane.slice >= plan_->geometry.slices) return false;
    const BoundStep& step = lane.steps->steps[lane.next];
    if (step.kind != Kind::Await) return false;
    const uint64_t epoch = epochOf(lane, step);
    for (int32_t r = 0; r < plan_->ranks; ++r) {
      if (Rank(r) == plan_->rank || !isThere(Rank(r))) continue;
      if (arrivalOf(step, epoch, Rank(r)).epoch.load(std::memory_order_acquire) != epoch) return false;  // pairs with Arrive's release
    }
  }
  return true;
}

LaneWait Operation::waitOf(const Lane& lane) const {
  LaneWait wait;
  wait.finished = lane.finished;
  if (lane.finished) return wait;
  wait.partners = partnersOf(*lane.steps, *plan_);
  forEachUnmet(lane, [&](Rank rank) { wait.awaits.push_back(rank); });
  if (lane.slice < plan_->geometry.slices) {
    const BoundStep& step = lane.steps->steps[lane.next];
    if (step.kind == Kind::Take && lane.given <= lane.slice) wait.ownLane = static_cast<int32_t>(lane.firstOfChannel) + step.lane;
  }
  // What it lacked has come meanwhile, or its step is of a kind that waits for nothing.
  wait.mayMove = wait.awaits.empty() && wait.ownLane < 0;
  return wait;
}

uint64_t Operation::countUnmet() const {
  uint64_t unmet = 0;
  for (const Lane& lane : lanes_) forEachUnmet(lane, [&](Rank) { ++unmet; });
  return unmet;
}

std::optional<Rank> Operation::awaited() const {
  std::optional<Rank> first;
  for (const Lane& lane : lanes_) forEachUnmet(lane, [&](Rank rank) { first = first.value_or(rank); });
  return first;
}

std::string Operation::describeWait() const {
  for (const Lane& lane : lanes_) {
    if (lane.finished) continue;
    if (lane.slice >= plan_->geometry.slices) {
      std::optional<Rank> reader;
      forEachUnmet(lane, [&](Rank rank) { reader = reader.value_or(rank); });
      return reader ? format("waits until rank {} has read its last messages", reader->value) : "has what it waited for";
    }
    const BoundStep& step = lane.steps->steps[lane.next];
    if (step.kind == Kind::Await) return format("waits for the arrival of rank {}, slice {}", step.peer.value, lane.slice);
    if (step.kind == Kind::Take) return format("waits for lane {} of its own, slice {}", static_cast<int>(step.lane), lane.slice);
    for (uint32_t i = step.firstFrom; i < step.firstFrom + static_cast<uint32_t>(step.numFrom); ++i) {
      const Source& source = lane.steps->sources[i];
      if (!source.end->ready()) return format("waits for rank {}, slice {} step {}", source.rank.value, lane.slice, lane.next);
    }
    const uint64_t bytes = rangeOf(lane, step).elems * plan_->elementBytes;
    for (uint32_t i = step.firstTo; i < step.firstTo + static_cast<uint32_t>(step.numTo); ++i) {
      transport::local::SendEnd* const end = lane.steps->targets[i];
      if (!end->ready(bytes)) return format("waits for a free slot of rank {}, slice {} step {}", end->peer().value, lane.slice, lane.next);
    }
    return format("has what it waited for, slice {} step {}", lane.slice, lane.next);
  }
  return "is finished";
}

}  // namespace tutti::exec::host
