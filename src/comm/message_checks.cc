#include "comm/message_checks.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "comm/device_rank.h"
#include "exec/host/signature.h"
#include "exec/host/verdict.h"

namespace tutti::comm {

using transport::device::MessageBook;
using transport::device::Page;

namespace {

uint64_t bytesOf(const Call& call) { return call.count * sizeOf(call.type); }

}  // namespace

MessageChecks::MessageChecks(std::shared_ptr<transport::local::Hub> hub, Rank rank, bool isOn)
    : hub_(std::move(hub)), rank_(rank), isOn_(isOn) {}

Status MessageChecks::look(std::span<DeviceCall> calls, const Page& page, bool isCaptured) {
  bool hasPosted = false;
  for (DeviceCall& made : calls) {
    Call& call = made.call;
    if (!call.isMessage() || made.isNumbered) continue;
    made.isNumbered = true;
    std::vector<Side>& sides = sides_[call.receives ? 1 : 0];
    if (sides.empty()) sides.resize(static_cast<size_t>(hub_->ranks()));
    Side& side = sides[static_cast<size_t>(call.root)];
    call.sequence = side.count++;
    if (isCaptured && !std::exchange(side.isCaptured, true) && isOn_ && call.root != rank_.value) bookOf(call, page).close(call.receives);
    made.isCompared = isOn_ && !side.isCaptured && call.root != rank_.value;
    if (!made.isCompared) continue;
    bookOf(call, page).post(call.receives, call.sequence, bytesOf(call));
    hasPosted = true;
  }
  if (!hasPosted) return {};
  std::atomic_thread_fence(std::memory_order_seq_cst);  // between the own posts and the look at the peers': one of two notices
  for (DeviceCall& made : calls)
    if (std::exchange(made.isCompared, false)) TUTTI_TRY(compare(made.call, page));
  return {};
}

MessageBook& MessageChecks::bookOf(const Call& call, const Page& page) const {
  return call.receives ? page.messages(call.root, rank_.value) : page.messages(rank_.value, call.root);
}

Status MessageChecks::compare(const Call& own, const Page& page) const {
  const auto bytes = bookOf(own, page).find(!own.receives, own.sequence);
  if (!bytes || *bytes == MessageBook::foldBytes(bytesOf(own))) return {};
  Call theirs = own;
  theirs.type = DataType::I8;
  theirs.count = *bytes;
  theirs.root = rank_.value;
  theirs.receives = !own.receives;
  const Rank peer(own.root);
  exec::host::Outcome outcome{
      transport::local::Ending::Mismatch, exec::host::mismatch(rank_, own, peer, theirs), {{rank_, own}, {peer, theirs}}};
  exec::host::conclude(*hub_, rank_, outcome, {}, 0);
  return std::move(outcome.cause);
}

}  // namespace tutti::comm
