// What peers have lent: reading it, and helping them to read what this rank has lent.
#include "exec/host/operation.h"

namespace tutti::exec::host {

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

}  // namespace tutti::exec::host
