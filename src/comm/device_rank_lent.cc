// Buffers of captured calls that ranks lend each other: when a call's are settled, and for how long they stay (comm/device_windows.h, 8).
#include <algorithm>
#include <array>
#include <utility>

#include "comm/device_rank.h"

namespace tutti::comm {
namespace {

/// Whether messages of a group can be lent: one to send and one to receive at most, and neither is to go by a kernel anyway. Streams do one
/// thing after the other, and of several any may have to wait for something that comes behind another one.
bool mayGoByStreams(std::span<const DeviceCall> calls, Rank own) {
  std::array<int, 2> messages{};
  for (const DeviceCall& call : calls) {
    if (call.plan == nullptr || !call.call.isMessage() || call.isToSelf(own)) continue;
    if (!call.lends || ++messages[call.call.receives ? 1 : 0] > 1) return false;
  }
  return true;
}

}  // namespace

void DeviceRank::lend(std::span<DeviceCall> calls) {
  const bool areFew = mayGoByStreams(calls, rank_);
  for (DeviceCall& call : calls) {
    if (!call.lends) continue;
    Status obstacle;
    if (call.call.isMessage() && !areFew) obstacle = error(Code::InvalidUsage, "its group has others that it might have to wait for");
    call.loan = windows_->lend(call.windowCall(), std::move(obstacle));
  }
}

/// All of them at once, and what comes of nothing is offered at once: what one side waits for the other may have behind something else.
Poll DeviceRank::settleLoans(std::span<DeviceCall> calls) {
  Poll poll = Poll::Ready;
  if (std::ranges::any_of(calls, [](const DeviceCall& call) { return call.lends && call.call.isMessage(); }) &&
      endpoint_->settleMessageLoans() == Poll::Failed)
    return Poll::Failed;
  for (DeviceCall& call : calls) {
    if (!call.lends) continue;
    const Poll lent = settleLoan(call);
    if (lent == Poll::Failed) return lent;
    if (lent == Poll::Pending) poll = lent;
  }
  return poll;
}

/// Where nothing came of it the call has to be opened as others are: on all ranks, which have found the same.
Poll DeviceRank::settleLoan(DeviceCall& call) {
  if (!call.call.isMessage()) {
    if (const Poll poll = endpoint_->settleWindows(); poll != Poll::Ready) return poll;
  } else if (!call.loan.first->isSettled) {
    return Poll::Pending;
  }
  call.lends = false;
  WindowCall found = call.windowCall();
  windows_->chooseLent(found, call.loan, call.plan->plan->way());
  if (found.window == nullptr) return call.isOpen() ? Poll::Ready : endpoint_->offerLate(call.plan->needs());
  call.estimatedUs = windows_->estimateUs(call.call, found.traits());
  call.window = std::move(found.window);
  call.inWindow = std::move(found.inWindow);
  return Poll::Ready;
}

void DeviceRank::keepLoans(std::span<DeviceCall> calls, const driver::cuda::CaptureInfo& capture) {
  for (DeviceCall& call : calls) {
    if (call.loan.first == nullptr) continue;
    const auto graph = captures_.markOf(capture);
    auto at = std::ranges::find(loans_, graph, &Loans::graph);
    if (at == loans_.end()) at = loans_.insert(at, {graph, {}});
    at->of.push_back(std::exchange(call.loan, {}));
  }
}

/// A graph that is found gone now was launched for the last time before the look at what runs.
void DeviceRank::dropLoans(bool mayWait) {
  hasGoneLoans_ = captures_.hasLost() || hasGoneLoans_;
  if (!hasGoneLoans_) return;
  const auto isThere = [](const Loans& loans) { return !loans.graph->isGone.load(std::memory_order_acquire); };  // pairs with graphIsGone()
  const auto gone = std::stable_partition(loans_.begin(), loans_.end(), isThere);
  if (gone != loans_.end() && !isIdle()) return;
  for (auto loans = gone; loans != loans_.end(); ++loans)
    std::erase_if(loans->of, [mayWait](const DeviceWindows::Loan& loan) { return mayWait || !loan.goesSlowly(); });
  loans_.erase(std::remove_if(gone, loans_.end(), [](const Loans& loans) { return loans.of.empty(); }), loans_.end());
  hasGoneLoans_ = !std::ranges::all_of(loans_, isThere);
}

}  // namespace tutti::comm
