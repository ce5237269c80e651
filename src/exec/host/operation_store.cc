// What a rank gives to others: messages into the slots of pipes, values into the cells of windows; once, where several get the same.
#include <cstring>
#include <utility>

#include "exec/host/operation.h"

namespace tutti::exec::host {

using transport::local::CellHead;
using transport::local::kCellInlineBytes;
using transport::local::kInLead;
using transport::local::kInlineBytes;
using transport::local::SendEnd;
using transport::local::SlotHead;

namespace {

/// Into a slot or a cell, that another core reads next. Whether it went past the cache.
bool storeFor(transport::local::StoreChoice* stores, std::byte* space, const std::byte* value, uint64_t bytes) {
  if (stores == nullptr || bytes < transport::local::StoreChoice::kLeastBytes) return copyBytes(space, value, bytes, false), false;
  const int64_t began = transport::local::StoreChoice::nowNs();
  const bool isPast = stores->isPast(bytes, began);
  copyBytes(space, value, bytes, isPast);
  stores->took(bytes, isPast, space, began, transport::local::StoreChoice::nowNs());
  return isPast;
}

}  // namespace

void Operation::send(SendEnd& end, const std::byte* stable, const std::byte* value, uint64_t bytes, Lead& lead) {
  SlotHead& head = end.head();
  head.signature = signature_;
  head.bytes = bytes;
  bool byReference = false;
  if (bytes <= kInlineBytes) {
    head.lent = 0;
    if (bytes > 0 && value != head.inlineData) std::memcpy(head.inlineData, value, bytes);
  } else if (mayLend(stable, bytes, end.slotBytes(), end.reach())) {
    head.lent = reinterpret_cast<uint64_t>(stable);
    byReference = true;
  } else if (lead.space != nullptr) {
    if (!std::exchange(lead.isWritten, true)) storeFor(end.stores(), lead.space, value, bytes);
    head.lent = end.staging(bytes) == lead.space ? 0 : kInLead;
    head.wentPast = 1;
  } else {
    head.lent = 0;
    std::byte* const space = end.staging(bytes);
    head.wentPast = value != space && storeFor(end.stores(), space, value, bytes) ? 1 : 0;
  }
  end.push(byReference);
}

bool Operation::runStore(const Lane& lane, const BoundStep& step) {
  const algo::Range range = rangeOf(lane, step);
  const uint64_t bytes = range.elems * plan_->elementBytes;
  const uint64_t epoch = epochOf(lane, step);
  CellHead& head = step.window->head(epoch, plan_->rank);
  head.signature = signature_;
  head.bytes = bytes;
  const std::byte* own = source(step.src, range);
  if (plan_->places && !step.reduce && placedAt_[static_cast<size_t>(step.peer.value)] == kInCell) {
    head.lent = step.fansOut ? kInLead : 0;
    if (step.fansOut) head.offer = 0;
    return true;
  }
  std::atomic<uint32_t>& reach = step.window->returned[plan_->rank.value].reach;
  if (plan_->lends && mayLend(own, bytes, step.window->cellBytes, reach.load(std::memory_order_acquire))) {  // pairs with Hub::window
    head.lent = reinterpret_cast<uint64_t>(own);
    head.offer = plan_->places ? offerFor(step, range) : 0;
    if (step.peer != plan_->rank) lent_[static_cast<size_t>(step.peer.value)] = epoch;
    return true;
  }
  head.lent = 0;
  if (step.fansOut && bytes > kCellInlineBytes) {
    if (std::exchange(published_, epoch) != epoch)
      storeFor(step.stores, plan_->windows[static_cast<size_t>(plan_->rank.value)]->payload(epoch, plan_->rank, bytes), own, bytes);
    head.lent = kInLead;
    head.offer = 0;
    return true;
  }
  std::byte* space = step.window->payload(epoch, plan_->rank, bytes);
  if (step.reduce && reduction_.scaling.hasFactor) {
    const void* sources[] = {own};
    combine(space, sources, 1, range.elems, true, false);
  } else if (bytes > 0) {
    storeFor(step.stores, space, own, bytes);
  }
  return true;
}

/// Also where nothing has been stored: the peer then hears of the call, and that it may go on.
void Operation::arrive(CellHead& head, uint64_t epoch) const {
  head.signature = signature_;
  // The release makes the cell's payload, size and signature visible; pairs with the acquire in runAwait.
  head.epoch.store(epoch, std::memory_order_release);
}

}  // namespace tutti::exec::host
