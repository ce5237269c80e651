#include "transport/device/message_loans.h"

#include <vector>

#include "core/format.h"

namespace tutti::transport::device {

LoanTurn::Met LoanTurn::come(Side side, uint64_t number) const {
  const uint64_t own = at(number, static_cast<uint64_t>(side));
  const uint64_t before = number == 0 ? 0 : at(number - 1, kBoth);
  for (uint64_t seen = word_.load(std::memory_order_acquire);;) {  // pairs with the peer's exchange
    if (seen == kNever) return Met::Never;
    if (seen == at(number, kBoth)) return Met::Together;
    if (seen == own) return Met::NotYet;
    const uint64_t next = seen == before ? own : at(number, kBoth);
    if (word_.compare_exchange_weak(seen, next, std::memory_order_acq_rel)) return next == own ? Met::NotYet : Met::Together;
  }
}

LoanTurn::Met LoanTurn::withdraw(Side side, uint64_t number) const {
  uint64_t own = at(number, static_cast<uint64_t>(side));
  if (word_.compare_exchange_strong(own, kNever, std::memory_order_acq_rel)) return Met::Never;
  return own == kNever ? Met::Never : Met::Together;
}

MessageLoans::Direction::Direction(const MessageLoans& loans, Rank from, Rank to)
    : cards(loans.page_.messageLoans(from.value, to.value)),
      windows(loans.around_, loans.page_.ranks(), {{from, cards.sender}, {to, cards.receiver}}, loans.key_, loans.rank_),
      turn(cards.turn),
      side(from == loans.rank_ ? LoanTurn::Side::Sender : LoanTurn::Side::Receiver),
      peer(from == loans.rank_ ? to : from) {}

UserWindows::Ref MessageLoans::begin(const Message& message, driver::cuda::DevicePtr base, Bytes bytes, Published::Readers readers,
                                     Status refusal) {
  const auto& [from, to, number] = message;
  Direction& direction = directions_.try_emplace({from.value, to.value}, *this, from, to).first->second;
  if (direction.isOver && refusal.ok()) refusal = error(Code::InvalidUsage, "a message of the two was not captured by both");
  UserWindows::Ref window = direction.windows.begin(base, bytes, WindowKind::Lent, readers, std::move(refusal));
  window->message = number;
  return window;
}

Poll MessageLoans::advance(bool allReach, Clock::time_point now, Clock::duration patience) {
  missing_ = Rank(-1);
  Poll all = Poll::Ready;
  for (auto& [key, direction] : directions_) {
    if (advance(direction, allReach, now, patience) == Poll::Ready) continue;
    all = Poll::Pending;
    if (missing_.value < 0) missing_ = direction.peer;
  }
  return all;
}

Poll MessageLoans::advance(Direction& direction, bool allReach, Clock::time_point now, Clock::duration patience) {
  while (const UserWindows::Ref first = direction.windows.firstUnsettled()) {
    if (!direction.hasMet && !direction.isOver) {
      auto met = direction.turn.come(direction.side, first->number);
      if (met == LoanTurn::Met::NotYet) {
        if (direction.since == Clock::time_point()) direction.since = now;
        if (now - direction.since < patience) return Poll::Pending;
        met = direction.turn.withdraw(direction.side, first->number);
      }
      direction.since = {};
      direction.hasMet = met == LoanTurn::Met::Together;
      direction.isOver = met == LoanTurn::Met::Never;
    }
    if (direction.isOver) {
      direction.windows.giveUp(format("rank {} has not captured that message, or had not when its peer did", direction.peer.value));
      return Poll::Ready;
    }
    if (direction.windows.advanceFirst(allReach) == Poll::Pending) return Poll::Pending;
    direction.hasMet = false;
  }
  return Poll::Ready;
}

}  // namespace tutti::transport::device
