// Split and shrink: set-ups whose ranks know each other from their parent.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "comm/losses.h"
#include "comm/meeting.h"
#include "comm/process.h"
#include "comm/settings.h"
#include "comm/setup.h"
#include "core/format.h"
#include "core/thread.h"
#include "exec/host/signature.h"
#include "exec/host/verdict.h"
#include "observe/log.h"

namespace tutti::comm {

using transport::local::Ending;

namespace {

class Child final : public Setup {
 public:
  Child(Communicator& parent, ChildRequest request, Clock& clock)
      : Setup(request.kind == ChildRequest::Kind::Split ? "ncclCommSplit" : "ncclCommShrink", clock, parent.timeoutMs()),
        parent_(parent),
        request_(std::move(request)) {}

 private:
  bool isSplit() const { return request_.kind == ChildRequest::Kind::Split; }
  Status arrive() override;
  Status inspect() override;
  Status finish(Outcome outcome) override;
  Poll settle(Status& cause) override;
  Rank unsettled() const override { return child_ == nullptr ? Rank(-1) : child_->missingOnGpu(); }

  void chooseMembers();
  Status compareLists() const;
  Status refuseOtherLists();
  Status compareCalls();
  void refuse(const exec::host::Outcome& why);

  Communicator& parent_;
  ChildRequest request_;
  ChildKey key_;
  std::shared_ptr<Meeting> meeting_;                  // the encounter, as what it is
  uint64_t hash_ = 0;                                 // of the new communicators, before the colour is mixed in
  uint64_t number_ = 0;                               // Split: among the collectives of the parent
  std::chrono::steady_clock::time_point comparedAt_;  // the lists
  bool posted_ = false;                               // Split: peers can see it on the board
  std::unique_ptr<Communicator> child_;               // from finish() until it has a handle
};

/// The survivors of a shrink, in their order.
void Child::chooseMembers() {
  for (int32_t r = 0; r < parent_.ranks(); ++r)
    if (!std::binary_search(request_.excluded.begin(), request_.excluded.end(), r)) members.push_back(r);
}

Status Child::arrive() {
  if (request_.stopsWork)
    parent_.stop(error(Code::RemoteError, "rank {} shrinks the communicator and ends its work in flight", parent_.rank().value));
  key_.mayBeBroken = parent_.isRevoked() || request_.stopsWork;
  int32_t ranks = parent_.ranks();
  place = parent_.rank();
  if (isSplit()) {
    number_ = parent_.takeSequence();
  } else {
    chooseMembers();
    ranks = static_cast<int32_t>(members.size());
    place = Rank(static_cast<int32_t>(std::lower_bound(members.begin(), members.end(), place.value) - members.begin()));
    key_.members = members;
  }
  parent_.countChild(key_);
  hash_ = mix(mix(parent_.hash(), key_.number), key_.mayBeBroken ? 1 : 0);
  for (const int32_t r : members) hash_ = mix(hash_, static_cast<uint64_t>(r));
  Arrival arrival{request_.color, isSplit() ? request_.key : 0, request_.config.minCtas, request_.config.maxCtas, availableCores()};
  Status described = parent_.describe(arrival);
  if (isSplit() && request_.color == kNoColor) described = Status();  // it becomes a member of nothing
  arrival.hasFailed = described.ok() ? 0 : 1;
  arrival.constants = process().constants.digest();
  auto arrived = Meeting::arrive(parent_.sharedHub(), key_, ranks, place, arrival);
  if (!arrived) return std::move(arrived).error();
  encounter = meeting_ = std::move(*arrived);
  if (!described.ok()) return described;  // the others are told
  if (isSplit()) return {};
  return refuseOtherLists();
}

/// Ends everything of the parent. The verdict is this rank's, before the others give up for its sake.
void Child::refuse(const exec::host::Outcome& why) {
  exec::host::conclude(parent_.hub(), parent_.rank(), why, {}, 0);
  parent_.stop(why.cause);
}

/// Two ranks that wait for each other with different lists, or one of them in a split, would wait for ever.
Status Child::compareLists() const {
  const auto placeIn = [](const std::vector<int32_t>& list, int32_t rank) {
    const auto at = std::lower_bound(list.begin(), list.end(), rank);
    return at != list.end() && *at == rank ? static_cast<int32_t>(at - list.begin()) : -1;
  };
  for (const auto& other : Meeting::open(parent_.sharedHub())) {
    const std::vector<int32_t>& theirs = other->members();
    const int32_t me = placeIn(theirs, parent_.rank().value);
    if (other->isSame(*meeting_) || me < 0 || other->has(Rank(me)) || !other->isWaiting()) continue;
    for (size_t i = 0; i < theirs.size(); ++i) {
      const int32_t mine = isSplit() ? theirs[i] : placeIn(members, theirs[i]);
      if (mine < 0 || meeting_->has(Rank(mine)) || !other->has(Rank(static_cast<int32_t>(i)))) continue;
      Status cause = error(Code::InvalidUsage, "{}",
                           isSplit() ? format("calls do not match: rank {} called ncclCommSplit, rank {} ncclCommShrink with {} ranks to "
                                              "remain",
                                              parent_.rank().value, theirs[i], theirs.size())
                                     : format("calls do not match: rank {} called ncclCommShrink with {} ranks to remain, rank {} with {} "
                                              "others; all ranks that remain must pass the same list and the same flags",
                                              parent_.rank().value, members.size(), theirs[i], theirs.size()));
      other->end(cause);
      return cause;
    }
  }
  return {};
}

Status Child::inspect() {
  auto& hub = parent_.hub();
  if (!key_.mayBeBroken && hub.latch(parent_.rank()).tripped()) return hub.latch(parent_.rank()).status();
  const int32_t places = members.empty() ? parent_.ranks() : static_cast<int32_t>(members.size());
  for (int32_t p = 0; p < places; ++p) {
    const Rank peer = nameOf(Rank(p));
    const bool isTold = !hub.isOnHost(peer) && !key_.mayBeBroken;  // by the latch, in words of those who know more (losses.h)
    if (!hub.isHere(peer) && !meeting_->has(Rank(p)) && !isTold && !hub.isAlive(peer)) {
      Status cause = error(Code::RemoteError, "{}; rank {} waited for it in {}", lossOf(hub, peer).text(), parent_.rank().value, callName);
      // The others hear of the death, not of what this rank does then; of one on another host the mesh tells them.
      if (!hub.departed(peer) && hub.isOnHost(peer)) failWithout(hub, hub.processOf(peer));
      return cause;
    }
    if (hub.lastCalls(peer) && !meeting_->has(Rank(p)))  // in this order: it may have come before it went
      return error(Code::RemoteError, "rank {} has finalized, destroyed or aborted its communicator; rank {} waits for it in {}",
                   peer.value, parent_.rank().value, callName);
  }
  constexpr std::chrono::milliseconds kBetween(10);
  // Arrivals on two hosts may cross, so that neither knew of the other when it came.
  const bool mayDiffer = hub.spansHosts() && !(isSplit() && key_.mayBeBroken);
  if (mayDiffer && std::chrono::steady_clock::now() - comparedAt_ >= kBetween) TUTTI_TRY(refuseOtherLists());
  return key_.mayBeBroken ? Status() : compareCalls();
}

Status Child::refuseOtherLists() {
  comparedAt_ = std::chrono::steady_clock::now();
  Status status = compareLists();
  if (!status.ok()) refuse({Ending::Mismatch, status, {}});
  return status;
}

/// A rank that makes another call of the parent will not come here, and would wait for this rank there.
Status Child::compareCalls() {
  auto& hub = parent_.hub();
  exec::host::Call call;
  call.collective = isSplit() ? exec::host::kSplitCall : exec::host::kShrinkCall;
  call.sequence = isSplit() ? number_ : parent_.nextSequence();
  if (isSplit() && !posted_ && parent_.isDrained()) {  // the board has one writer at a time: not while works of streams post their calls
    TUTTI_TRY(parent_.settleOwed());
    hub.board(parent_.rank()).post(call);
    posted_ = true;
  }
  const int32_t places = members.empty() ? parent_.ranks() : static_cast<int32_t>(members.size());
  for (int32_t p = 0; p < places; ++p) {
    const Rank peer = nameOf(Rank(p));
    if (peer == parent_.rank() || meeting_->has(Rank(p))) continue;
    const auto theirs = hub.board(peer).find(call.sequence);
    if (!theirs || exec::host::agree(call, *theirs)) continue;
    Status cause = exec::host::mismatch(parent_.rank(), call, peer, *theirs);
    refuse({Ending::Mismatch, cause, {{parent_.rank(), call}, {peer, *theirs}}});
    return cause;
  }
  return {};
}

Status Child::finish(Outcome outcome) {
  if (outcome.hub == nullptr) return {};
  if (outcome.hub->spansHosts()) outcome.sites = parent_.sites();
  const bool shares = (isSplit() ? parent_.config().splitShare : parent_.config().shrinkShare) && !key_.mayBeBroken;
  const uint64_t hash = mix(hash_, static_cast<uint64_t>(static_cast<uint32_t>(request_.color)));
  child_ = std::make_unique<Communicator>(outcome.place.rank, outcome.place.ranks, parent_.device(), hash, request_.config,
                                          shares ? parent_.shared() : nullptr, parent_.isOnGpu());
  return child_->open(outcome);
}

/// Nobody sees the child before it can be used.
Poll Child::settle(Status& cause) {
  ncclComm* handle = nullptr;
  if (child_ != nullptr) {
    if (const Poll poll = child_->connectGpu(cause); poll != Poll::Ready) return poll;
    auto made = process().handles.make(child_.get());
    if (!made) {
      cause = std::move(made).error();
      return Poll::Failed;
    }
    const Communicator& child = *child_.release();  // owned through its handle from here on
    handle = *made;
    observe::info(observe::Subsys::Init,
                  "{} comm {} rank {} nranks {} cudaDev {} commId 0x{:x} parent {} splitCount {} color {} key {} - Init COMPLETE", callName,
                  static_cast<void*>(handle), child.rank().value, child.ranks(), child.device(), child.hash(),
                  static_cast<void*>(request_.parent), parent_.countChild(), request_.color, request_.key);
  }
  // release: whoever reads the handle from another thread also sees what it leads to
  std::atomic_ref<ncclComm*>(*request_.result).store(handle, std::memory_order_release);
  return Poll::Ready;
}

}  // namespace

std::shared_ptr<Setup> makeChild(Communicator& parent, ChildRequest request, Clock& clock) {
  return std::make_shared<Child>(parent, std::move(request), clock);
}

}  // namespace tutti::comm
