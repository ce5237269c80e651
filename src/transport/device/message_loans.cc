#include "transport/device/message_loans.h"

#include <vector>

#include "core/format.h"

namespace tutti::transport::device {

bool LoanTurn::hasCome(uint64_t word, Side side, uint64_t number) {
  const uint64_t ahead = (word >> shiftOf(side)) - (number + 1);
  return (ahead & kCount) <= kCount / 2;  // the counts wrap
}

LoanTurn::Met LoanTurn::look(uint64_t word, uint64_t number) {
  if (hasCome(word, Side::Sender, number) && hasCome(word, Side::Receiver, number)) return Met::Together;
  return (word & kWithdrawn) != 0 ? Met::Never : Met::NotYet;
}

LoanTurn::Met LoanTurn::come(Side side, uint64_t number) const {
  for (uint64_t seen = word_.load(std::memory_order_acquire);;) {  // pairs with the peer's exchange
    const Met met = look(seen, number);
    if (met != Met::NotYet || hasCome(seen, side, number)) return met;
    const uint64_t next = (seen & ~(kCount << shiftOf(side))) | ((number + 1) & kCount) << shiftOf(side);
    if (word_.compare_exchange_weak(seen, next, std::memory_order_acq_rel)) return look(next, number);
  }
}

LoanTurn::Met LoanTurn::withdraw(uint64_t number) const {
  for (uint64_t seen = word_.load(std::memory_order_acquire);;) {  // pairs with the peer's exchange
    const Met met = look(seen, number);
    if (met != Met::NotYet) return met;
    if (word_.compare_exchange_weak(seen, seen | kWithdrawn, std::memory_order_acq_rel)) return Met::Never;
  }
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
        met = direction.turn.withdraw(first->number);
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
