// What peers have lent: reading it, helping them to read what this rank has lent, and writing results to the places that they offer.
#include <algorithm>
#include <cstring>

#include "exec/host/operation.h"
#include "exec/host/reduce/stream.h"
#include "transport/local/pipe.h"

namespace tutti::exec::host {
namespace {

/// The whole pages of [address, address + bytes), in bytes from its begin; none: both are the same.
struct Pages {
  uint64_t from = 0;
  uint64_t to = 0;
};

Pages pagesOf(uint64_t address, uint64_t bytes) {
  const uint64_t page = memory::pageBytes();
  const uint64_t from = (page - address % page) % page;
  const uint64_t last = (address + bytes) % page;
  return from + last >= bytes ? Pages() : Pages{from, bytes - last};
}

/// Past the cache needs fenceStreams() before anybody is told.
void store(std::byte* to, const std::byte* from, uint64_t bytes, bool isPast) {
  if (isPast) {
    streamBytes(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

/// Whether a value is better read where it lies than copied into `space` bytes. `reach`: what its reader can read.
bool Operation::mayLend(const std::byte* stable, uint64_t bytes, uint64_t space, uint32_t reach) const {
  using namespace transport::local;
  if (stable == nullptr) return false;
  if ((reach & kReachesAll) != 0 || ((reach & kReachesExports) != 0 && exporter_ != nullptr)) return bytes > std::min(kEagerBytes, space);
  return (reach & plan_->copies) != 0 && bytes >= std::min(kCopyCallBytes, space + 1);
}

/// What `writer` has stored for this rank, as lentBy().
const std::byte* Operation::contentOf(const BoundStep& step, uint64_t epoch, Rank writer, uint64_t bytes, std::byte* to) {
  const uint64_t lent = step.window->head(epoch, writer).lent;
  if (lent == 0) return step.window->payload(epoch, writer, bytes);
  const auto at = static_cast<size_t>(writer.value);
  if (lent == transport::local::kInLead && at < plan_->windows.size()) return plan_->windows[at]->payload(epoch, writer, bytes);
  return lentBy(plan_->neighbours.empty() ? nullptr : plan_->neighbours[at], lent, bytes, to, at);
}

/// What a peer has lent, as this rank can read it: where it lies, or copied to `to`, or to memory kept for the `operand` if that is null.
/// Null: the operation has failed.
const std::byte* Operation::lentBy(transport::local::Neighbour* owner, uint64_t address, uint64_t bytes, std::byte* to, size_t operand) {
  if (owner == nullptr) return reinterpret_cast<const std::byte*>(address);
  if (const std::byte* here = owner->find(address, bytes); here != nullptr) return here;
  if (to == nullptr) {
    if (copies_.size() <= operand) copies_.resize(operand + 1);
    if (copies_[operand].size() < bytes) copies_[operand].resize(bytes);
    to = copies_[operand].data();
  }
  status_ = owner->copy(to, address, bytes);
  return status_.ok() ? to : nullptr;
}

/// The same to its place, with the lender's help. Null: not yet, or the operation has failed.
const std::byte* Operation::shareCopy(const Source& source, uint64_t bytes, std::byte* to) {
  const uint64_t address = source.end->head().lent;
  const std::byte* const here = source.neighbour->find(address, bytes);
  const Poll poll = source.end->copy().advance(*source.neighbour, source.end->received() + 1, to, address, here, bytes, status_);
  return poll == Poll::Ready ? to : nullptr;
}

/// A lane that waits copies a part of what it has lent, for readers in other processes that copy anyway.
void Operation::help(const BoundLane& bound) {
  if (plan_->copies == 0) return;
  for (transport::local::SendEnd* end : bound.sendEnds) moved_ = end->help() || moved_;
}

/// What to say beside a loan: with a contribution, where its reader may put the result; with a result, where it has been put.
uint64_t Operation::offerFor(const BoundStep& step, const algo::Range& range) {
  if (step.peer == plan_->rank) return 0;
  const auto peer = static_cast<size_t>(step.peer.value);
  if (!step.reduce) return placedAt_[peer];
  if (plan_->neighbours[peer] != nullptr) {
    if (exporter_ == nullptr) return 0;  // it could not be taken back
    hasOffered_ = true;
  }
  return reinterpret_cast<uint64_t>(destination(range));
}

/// Where this rank writes its result of so many bytes for others, beside its own output: in their outputs, as far as they have offered
/// those and this process can write there; in their windows where they could not read it in its output. False: nowhere.
bool Operation::findTargets(const BoundStep& step, uint64_t epoch, uint64_t bytes) {
  targets_.clear();
  for (size_t peer = 0; peer < placedAt_.size(); ++peer) {
    const Rank rank(static_cast<int32_t>(peer));
    placedAt_[peer] = rank == plan_->rank ? 0 : findTarget(step, epoch, rank, bytes);
  }
  return !targets_.empty();
}

uint64_t Operation::findTarget(const BoundStep& step, uint64_t epoch, Rank rank, uint64_t bytes) {
  const auto peer = static_cast<size_t>(rank.value);
  const transport::local::WindowView& window = *plan_->windows[peer];
  const uint32_t reach = window.returned[plan_->rank.value].reach.load(std::memory_order_acquire);  // pairs with Hub::window
  if (!mayLend(out_, bytes, window.cellBytes, reach)) {  // runStore() will not lend either
    if (bytes > window.cellBytes || !stores_.isPast) return 0;
    // As all get the same, all read it in one place; of two ranks, in that of the only other one.
    const bool isShared = plan_->ranks > 2;
    const bool isThere = isShared && std::any_of(targets_.begin(), targets_.end(), [](const Target& t) { return t.isInWindow; });
    const auto& place = isShared ? *plan_->windows[static_cast<size_t>(plan_->rank.value)] : window;
    if (!isThere)
      targets_.push_back({place.payload(epoch + 1, plan_->rank, bytes), 0, bytes, true, plan_->stores[peer]->prefersPast(bytes)});
    return kInCell;
  }
  const transport::local::CellHead& head = step.window->head(epoch, rank);
  const Pages pages = head.lent != 0 && head.offer != 0 ? pagesOf(head.offer, bytes) : Pages();
  if (pages.from == pages.to) return 0;
  transport::local::Neighbour* const owner = plan_->neighbours[peer];
  std::byte* const here = owner == nullptr ? reinterpret_cast<std::byte*>(head.offer) : owner->find(head.offer, bytes);
  if (here == nullptr) return 0;
  targets_.push_back({here, pages.from, pages.to});
  return head.offer;
}

/// What all ranks have stored, combined as combine() does, to the own output and to the targets. A tile of it lies in the first-level cache
/// while it is written to all of them. Nothing is brought into a cache to be written if the call is too large for that, and nothing of
/// other ranks if they are too far away.
void Operation::combineToAll(const algo::Range& range) {
  const uint64_t bytes = range.elems * plan_->elementBytes;
  if (stores_.isPast || bytes < transport::local::StoreChoice::kLeastBytes) return combineToAll(range, stores_.isPast);
  const int64_t began = transport::local::StoreChoice::nowNs();
  const bool isPast = plan_->results->isPast(bytes, began);
  combineToAll(range, isPast);
  plan_->results->took(bytes, isPast, destination(range), began, transport::local::StoreChoice::nowNs());
}

/// `isPast`: those of other ranks go past the cache.
void Operation::combineToAll(const algo::Range& range, bool isPast) {
  constexpr uint64_t kTileBytes = 4096;
  alignas(transport::local::kCacheLine) std::byte tile[kTileBytes];
  const uint64_t bytes = range.elems * plan_->elementBytes;
  std::byte* const own = destination(range);
  // A shorter first tile lets all others start on a cache line of the own output.
  uint64_t limit = kTileBytes - reinterpret_cast<uint64_t>(own) % transport::local::kCacheLine;
  tileSources_.resize(cells_.size());
  uint64_t size = 0;
  for (uint64_t done = 0; done < bytes; done += size, limit = kTileBytes) {
    const uint64_t elems = std::min(limit, bytes - done) / plan_->elementBytes;
    size = elems * plan_->elementBytes;
    for (size_t r = 0; r < cells_.size(); ++r) tileSources_[r] = static_cast<const std::byte*>(cells_[r]) + done;
    combine(tile, tileSources_.data(), plan_->ranks, elems, false, true);
    store(own + done, tile, size, stores_.isPast);
    for (const Target& target : targets_) {
      const uint64_t from = std::max(done, target.from);
      const uint64_t to = std::min(done + size, target.to);
      if (from >= to) continue;
      store(target.here + from, tile + (from - done), to - from, target.isInWindow ? target.isPast : isPast);
    }
  }
  fenceStreams();
}

/// Whether the whole pages of what the step loads have been written already. A peer can only say so of what it was offered.
bool Operation::isPlaced(const BoundStep& step, uint64_t epoch, const std::byte* place) const {
  const transport::local::CellHead& head = step.window->head(epoch, step.peer);
  return plan_->places && head.lent != 0 && head.offer == reinterpret_cast<uint64_t>(place);
}

/// The bytes before and behind those pages. False: the operation has failed.
bool Operation::loadRest(const BoundStep& step, uint64_t epoch, std::byte* to, uint64_t bytes) {
  const Pages pages = pagesOf(reinterpret_cast<uint64_t>(to), bytes);
  if (pages.from == 0 && pages.to == bytes) return true;
  const std::byte* const content = contentOf(step, epoch, step.peer, bytes, nullptr);
  if (content == nullptr) return false;
  copyBytes(to, content, pages.from, false);
  copyBytes(to + pages.to, content + pages.to, bytes - pages.to, false);
  return true;
}

bool Operation::takeBack() noexcept {
  if (!hasOffered_) return true;
  return exporter_->takeBack(out_, plan_->geometry.totalElems * plan_->elementBytes);
}

}  // namespace tutti::exec::host
