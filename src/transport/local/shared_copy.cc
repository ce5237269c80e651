#include "transport/local/shared_copy.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>

#include "transport/local/neighbour.h"

namespace tutti::transport::local {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kLeastPart = 128 << 10;  // shorter system calls copy more slowly: `bench_mpi broadcast --from 512K --to 16M`

/// How long a lender may take over a part before its state is asked for, which takes system calls.
constexpr std::chrono::nanoseconds kPatience = std::chrono::milliseconds(1);

int64_t nowNs() { return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

constexpr uint64_t openWord(uint64_t number, uint32_t part) { return number << 8 | part; }
constexpr uint64_t numberOf(uint64_t word) { return word >> 8; }
constexpr uint32_t partOf(uint64_t word) { return static_cast<uint32_t>(word & 0xff); }
constexpr uint64_t bitOf(uint32_t part) { return uint64_t{1} << part; }

/// The next part of message `number`, if there is any left.
std::optional<uint32_t> take(CopyDesk& desk, uint64_t number) {
  uint64_t word = desk.next.load(std::memory_order_acquire);
  while (numberOf(word) == number && word != 0 && partOf(word) < desk.numParts.load(std::memory_order_acquire))
    if (desk.next.compare_exchange_weak(word, word + 1, std::memory_order_seq_cst)) return partOf(word);
  return std::nullopt;
}

Status copyBytes(const Neighbour& lender, std::byte* to, uint64_t theirs, const std::byte* here, uint64_t bytes) {
  if (here == nullptr) return lender.copy(to, theirs, bytes);
  std::memcpy(to, here, bytes);
  return {};
}

/// Takes all parts back. Whether nobody is in a call, or comes to one, that still knows them.
bool hasLeft(CopyDesk& desk, const Neighbour& lender) noexcept {
  for (iovec& part : desk.parts) __atomic_store_n(&part.iov_len, 0, __ATOMIC_RELAXED);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // before the look at where the lender stands
  const int32_t helper = desk.helper.load(std::memory_order_seq_cst);  // pairs with helpWith(): what it wrote comes before
  return helper == 0 || lender.isAtRest(helper);
}

uint64_t bytesOf(uint32_t part, uint64_t partBytes, uint64_t bytes) { return std::min(partBytes, bytes - part * partBytes); }

}  // namespace

void SharedCopy::open(uint64_t number, std::byte* to, uint64_t bytes) {
  const uint64_t even = (bytes + kMostParts - 1) / kMostParts;
  partBytes_ = std::max(kLeastPart, (even + kPage - 1) / kPage * kPage);
  numParts_ = static_cast<uint32_t>((bytes + partBytes_ - 1) / partBytes_);
  done_ = 0;
  askedNs_ = 0;
  std::atomic_thread_fence(std::memory_order_release);  // who sees the new number of parts sees that the desk was closed: pairs with take()
  for (uint32_t part = 0; part < numParts_; ++part) desk_->parts[part] = {to + part * partBytes_, bytesOf(part, partBytes_, bytes)};
  desk_->partBytes.store(partBytes_, std::memory_order_relaxed);
  desk_->numParts.store(numParts_, std::memory_order_relaxed);
  desk_->written.store(0, std::memory_order_relaxed);
  desk_->refused.store(0, std::memory_order_relaxed);
  desk_->next.store(openWord(number, 0), std::memory_order_release);  // pairs with take()
}

Status SharedCopy::copyPart(const Neighbour& lender, uint32_t part, std::byte* to, uint64_t theirs, const std::byte* here,
                            uint64_t bytes) {
  const uint64_t at = part * partBytes_;
  done_ |= bitOf(part);
  return copyBytes(lender, to + at, theirs + at, here == nullptr ? nullptr : here + at, bytesOf(part, partBytes_, bytes));
}

Poll SharedCopy::advance(const Neighbour& lender, uint64_t number, std::byte* to, uint64_t theirs, const std::byte* here,
                         uint64_t bytes, Status& status) {
  if (lender_.load(std::memory_order_relaxed) == nullptr) {
    if (desk_->helper.load(std::memory_order_acquire) != 0) {  // it was stopped there during an earlier copy: pairs with helpWith()
      status = copyBytes(lender, to, theirs, here, bytes);
      return status.ok() ? Poll::Ready : Poll::Failed;
    }
    open(number, to, bytes);
    lender_.store(&lender, std::memory_order_release);  // pairs with stop()
  }
  while (const auto part = take(*desk_, number)) {
    status = copyPart(lender, *part, to, theirs, here, bytes);
    if (!status.ok()) return finish(Poll::Failed);
  }
  const uint64_t all = bitOf(numParts_) - 1;
  const uint64_t refused = desk_->refused.load(std::memory_order_acquire);  // pairs with helpWith()
  uint64_t rest = all & ~done_ & ~desk_->written.load(std::memory_order_acquire);  // pairs with helpWith()
  uint64_t own = rest & refused;  // for this side, beside those that it took
  if (rest != own && takeBack(lender)) own = rest = all & ~done_ & ~desk_->written.load(std::memory_order_acquire);
  for (uint32_t part = 0; part < numParts_; ++part) {
    if ((own & bitOf(part)) == 0) continue;
    status = copyPart(lender, part, to, theirs, here, bytes);
    if (!status.ok()) return finish(Poll::Failed);
  }
  return rest == own ? finish(Poll::Ready) : Poll::Pending;
}

Poll SharedCopy::finish(Poll poll) noexcept {
  if (poll == Poll::Failed) {
    stop();
  } else {
    desk_->next.store(0, std::memory_order_relaxed);
    lender_.store(nullptr, std::memory_order_relaxed);
  }
  return poll;
}

/// True when the lender writes none of the parts any more that it has taken. Asks seldom.
bool SharedCopy::takeBack(const Neighbour& lender) noexcept {
  const int64_t now = nowNs();
  if (askedNs_ == 0) askedNs_ = now;
  if (now - askedNs_ < kPatience.count()) return false;
  askedNs_ = now;
  return hasLeft(*desk_, lender);
}

void SharedCopy::stop() noexcept {
  const Neighbour* const lender = lender_.load(std::memory_order_acquire);  // pairs with advance()
  if (lender == nullptr) return;
  desk_->next.exchange(0, std::memory_order_seq_cst);  // who takes a part from now on gets none; who has taken one is at the desk
  while (!hasLeft(*desk_, *lender)) sched_yield();
  lender_.store(nullptr, std::memory_order_relaxed);
}

namespace {

/// Has the pages there of the part that is next, which may take as long as it will: the part, or kMostParts if there is none.
uint32_t touchNext(const CopyDesk& desk, const LentValue& value) {
  const uint64_t word = desk.next.load(std::memory_order_acquire);  // pairs with SharedCopy::open()
  const uint32_t part = partOf(word);
  const uint64_t partBytes = desk.partBytes.load(std::memory_order_relaxed);
  const uint32_t numParts = std::min(kMostParts, desk.numParts.load(std::memory_order_acquire));
  if (numberOf(word) != value.number || part >= numParts || part * partBytes >= value.bytes) return kMostParts;
  const auto* const from = reinterpret_cast<const volatile std::byte*>(value.data) + part * partBytes;
  const uint64_t bytes = bytesOf(part, partBytes, value.bytes);
  for (uint64_t at = 0; at < bytes; at += kPage) (void)from[at];
  (void)from[bytes - 1];
  return part;
}

}  // namespace

uint64_t wantsHelp(const CopyDesk& desk) {
  const uint64_t word = desk.next.load(std::memory_order_acquire);  // pairs with SharedCopy::open()
  return word != 0 && partOf(word) < desk.numParts.load(std::memory_order_relaxed) ? numberOf(word) : 0;
}

bool helpWith(CopyDesk& desk, const Neighbour& reader, const LentValue& value) {
  constexpr int kTries = 4;  // the reader may take the part meanwhile
  for (int i = 0; i < kTries; ++i) {
    const uint32_t part = touchNext(desk, value);
    if (part == kMostParts) return false;
    desk.helper.store(gettid(), std::memory_order_seq_cst);  // before the exchange: who closes the desk afterwards sees it
    uint64_t word = openWord(value.number, part);
    const bool isTaken = desk.next.compare_exchange_strong(word, word + 1, std::memory_order_seq_cst);
    if (isTaken) {
      const uint64_t partBytes = desk.partBytes.load(std::memory_order_relaxed);
      const bool isWritten = reader.fill(desk.parts[part], value.data + part * partBytes, bytesOf(part, partBytes, value.bytes));
      (isWritten ? desk.written : desk.refused).fetch_or(bitOf(part), std::memory_order_release);  // pairs with advance()
    }
    desk.helper.store(0, std::memory_order_release);  // pairs with hasLeft()
    if (isTaken) return true;
  }
  return false;
}

}  // namespace tutti::transport::local
