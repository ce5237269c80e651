#include "transport/device/user_windows.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/format.h"
#include "observe/log.h"

namespace tutti::transport::device {

using driver::cuda::DevicePtr;

namespace {

constexpr uint64_t announced(uint64_t number) { return 2 * number + 1; }
constexpr uint64_t mapped(uint64_t number) { return 2 * number + 2; }

bool isLent(WindowKind kind) { return kind == WindowKind::Lent || kind == WindowKind::LentInPlace; }

const char* nameOf(WindowKind kind) {
  switch (kind) {
    case WindowKind::Plain: return "as a window";
    case WindowKind::Symmetric: return "as a symmetric window";
    case WindowKind::Lent: return "for a captured call";
    case WindowKind::LentInPlace: break;
  }
  return "for a captured call in place";
}

}  // namespace

/// Whoever holds the last reference may be in the middle of a capture.
UserWindow::~UserWindow() {
  if (gpu_ == nullptr) return;
  const auto outside = driver::cuda::OutsideCaptures::enter(gpu_->driver());
  if (!outside) gpu_->driver().tellLost(outside.error());
  published_.reset();
  reached_.clear();
}

bool UserWindow::goesSlowly() const {
  return std::ranges::any_of(reached_, [](const Reached& reached) { return reached.goesSlowly(); });
}

UserWindows::~UserWindows() {
  for (const auto& window : unsettled_) end(window);
  while (!windows_.empty()) end(windows_.back());
}

UserWindows::Ref UserWindows::begin(DevicePtr base, Bytes bytes, WindowKind kind, Published::Readers readers, Status refusal) {
  auto window = std::make_shared<UserWindow>();
  window->number = next_++;
  window->base = base;
  window->bytes = bytes;
  window->kind = kind;
  window->gpu_ = around_.gpu;
  window->refusal = std::move(refusal);
  unsettled_.push_back(window);
  if (!window->refusal.ok() || base == 0) return window;
  const auto at = around_.segments->published().add(*around_.gpu, base, bytes, readers);
  if (at) {
    window->published_ = {around_.segments->published(), at->number};
    window->offset_ = at->offset;
    window->buffer = at->buffer;
    window->hasFinePages = at->hasFinePages;
  } else {
    window->refusal = at.error();
  }
  return window;
}

std::vector<UserWindows::Member> UserWindows::allOf(const Page& page) {
  std::vector<Member> all;
  for (int32_t r = 0; r < page.ranks(); ++r) all.push_back({Rank(r), page.rank(r).userWindow});
  return all;
}

UserWindowCard& UserWindows::ownCard(uint64_t number) const {
  return card(*std::ranges::find(members_, rank_, &Member::rank), number);
}

Poll UserWindows::advance(bool allReach) {
  while (!unsettled_.empty())
    if (advanceFirst(allReach) == Poll::Pending) return Poll::Pending;
  missing_ = Rank(-1);
  return Poll::Ready;
}

Poll UserWindows::advanceFirst(bool allReach) {
  UserWindow& first = *unsettled_.front();
  if (settle(first, allReach) == Poll::Pending) return Poll::Pending;
  if (first.refusal.ok() && !isLent(first.kind)) windows_.push_back(unsettled_.front());
  finish(first);
  unsettled_.pop_front();
  return Poll::Ready;
}

void UserWindows::finish(UserWindow& window) {
  window.isSettled = true;
  window.isUsable = window.reason.empty();
  if (!window.isUsable)
    observe::info(observe::Subsys::Reg, "rank {}: memory given {} ({}) is not used: {}", rank_.value, nameOf(window.kind), window.number,
                  window.reason);
}

void UserWindows::giveUp(const std::string& reason) {
  for (const Ref& window : unsettled_) {
    window->reason = reason;
    finish(*window);
  }
  unsettled_.clear();
}

Poll UserWindows::settle(UserWindow& window, bool allReach) {
  if (!window.isAnnounced_) announce(window);
  if (!isAnnouncedByAll(window.number)) return Poll::Pending;
  if (!window.isMapped_) map(window, allReach);
  return isMappedByAll(window) ? Poll::Ready : Poll::Pending;
}

void UserWindows::announce(UserWindow& window) {
  UserWindowCard& own = ownCard(window.number);
  own.place.segment = {key_, around_.gpu->device(), memory::Place::User, window.published_.number()};
  own.place.offset = window.offset_;
  own.place.bytes = window.bytes.value;
  own.isRefused = window.refusal.ok() ? 0 : 1;
  own.isAbsent = window.base == 0 ? 1 : 0;
  own.kind = window.kind;
  own.hasFinePages = window.hasFinePages ? 1 : 0;
  own.isUnmapped = 0;
  own.message = window.message;
  own.state.store(announced(window.number), std::memory_order_release);  // pairs with isAnnouncedByAll()
  window.isAnnounced_ = true;
}

bool UserWindows::isAnnouncedByAll(uint64_t number) {
  for (const Member& member : members_) {
    if (card(member, number).state.load(std::memory_order_acquire) >= announced(number)) continue;  // pairs with announce()
    missing_ = member.rank;
    return false;
  }
  return true;
}

/// Why the window is none for all ranks, as all of them find it; empty: it is one.
std::string UserWindows::unlike(const UserWindow& window, bool allReach) const {
  if (!allReach) return "some GPUs do not reach each other's memory";
  if (ranks_ > exec::cuda::kMaxLocalRanks)
    return format("at most {} ranks map each other's windows, and there are {}", exec::cuda::kMaxLocalRanks, ranks_);
  const int32_t one = members_.front().rank.value;
  const UserWindowCard& first = card(members_.front(), window.number);
  for (const Member& member : members_) {
    const UserWindowCard& theirs = card(member, window.number);
    const int32_t r = member.rank.value;
    if (theirs.isRefused != 0) return format("the memory of rank {} cannot be shared", r);
    if (theirs.place.bytes != first.place.bytes)
      return format("rank {} registered {} bytes, rank {} registered {}", one, first.place.bytes, r, theirs.place.bytes);
    if (theirs.message != first.message)
      return format("to rank {} it is message {}, to rank {} message {}", one, first.message, r, theirs.message);
    if (theirs.kind != first.kind) return format("rank {} gave it {}, rank {} {}", one, nameOf(first.kind), r, nameOf(theirs.kind));
  }
  return {};
}

void UserWindows::map(UserWindow& window, bool allReach) {
  window.reason = unlike(window, allReach);
  window.isMapped_ = true;
  window.at.assign(static_cast<size_t>(ranks_), 0);
  window.at[static_cast<size_t>(rank_.value)] = window.base;
  UserWindowCard& own = ownCard(window.number);
  for (const Member& member : members_) {
    const UserWindowCard& theirs = card(member, window.number);
    if (!window.reason.empty()) break;
    if (member.rank == rank_ || theirs.isAbsent != 0) continue;
    const int32_t r = member.rank.value;
    const BankPlace& place = theirs.place;
    window.hasFinePages = window.hasFinePages || theirs.hasFinePages != 0;
    auto reached = around_.segments->reach(*around_.gpu, place.segment);
    if (!reached) {
      window.reason = format("rank {} cannot map the memory of rank {}: {}", rank_.value, r, reached.error().text());
      own.isUnmapped = 1;
      break;
    }
    if (place.offset > reached->size().value || window.bytes.value > reached->size().value - place.offset) {
      window.reason = format("the memory that rank {} shares ends before its window does", r);
      own.isUnmapped = 1;
      break;
    }
    window.at[static_cast<size_t>(r)] = reached->address() + place.offset;
    window.reached_.push_back(std::move(*reached));
  }
  own.state.store(mapped(window.number), std::memory_order_release);  // pairs with isMappedByAll()
}

bool UserWindows::isMappedByAll(UserWindow& window) {
  for (const Member& member : members_) {
    const UserWindowCard& theirs = card(member, window.number);
    if (theirs.state.load(std::memory_order_acquire) < mapped(window.number)) {  // pairs with map()
      missing_ = member.rank;
      return false;
    }
    if (theirs.isUnmapped != 0 && window.reason.empty()) window.reason = format("rank {} cannot map it", member.rank.value);
  }
  if (!window.reason.empty() && !isLent(window.kind)) window.reached_.clear();  // what is lent goes with its graph
  return true;
}

UserWindows::Ref UserWindows::find(DevicePtr address, uint64_t size) const {
  const auto isIt = [&](const Ref& w) { return w->isUsable && w->kind == WindowKind::Symmetric && w->holds(address, size); };
  const auto found = std::find_if(windows_.rbegin(), windows_.rend(), isIt);
  return found == windows_.rend() ? nullptr : *found;
}

UserWindows::Ref UserWindows::find(const void* window) const {
  const auto found = std::find_if(windows_.begin(), windows_.end(), [&](const Ref& w) { return w.get() == window; });
  return found == windows_.end() ? nullptr : *found;
}

void UserWindows::end(const Ref& window) {
  window->published_.reset();
  std::erase(windows_, window);
}

std::vector<Reached> UserWindows::takeReached() {
  std::vector<Reached> all;
  for (const Ref& window : windows_) {
    window->isUsable = false;
    std::move(window->reached_.begin(), window->reached_.end(), std::back_inserter(all));
    window->reached_.clear();
  }
  return all;
}

}  // namespace tutti::transport::device
