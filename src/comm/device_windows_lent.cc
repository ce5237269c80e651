// Buffers of captured calls that ranks lend each other (comm/device_windows.h, 8).
#include <utility>

#include "comm/device_windows.h"
#include "core/format.h"

namespace tutti::comm {

using driver::cuda::DevicePtr;
using transport::device::Published;
using transport::device::WindowKind;

namespace {

bool overlap(DevicePtr a, DevicePtr b, uint64_t bytes) { return a < b + bytes && b < a + bytes; }

}  // namespace

bool DeviceWindows::mayLend(const Call& call, const tune::Way& kernel) const {
  if (!settings_.lendsCaptured || call.count == 0 || endpoint_.sharesProcesses() || !obstacle(call.collective).empty()) return false;
  for (const bool isInPlace : {false, true})
    for (const bool hasFinePages : {false, true})
      if (isTaken(call, {isInPlace, hasFinePages, true}, kernel)) return true;
  return false;
}

/// Ranks begin equally many windows for a call, whatever each of them finds its buffers to be.
DeviceWindows::Loan DeviceWindows::lend(const WindowCall& made, Status obstacle) const {
  const Call& call = made.call;
  const DevicePtr in = addressOf(made.in);
  const DevicePtr out = addressOf(made.out);
  const bool isAllReduce = call.collective == Collective::AllReduce;
  const bool isAllToAll = call.collective == Collective::AllToAll;
  const uint64_t chunk = call.count * sizeOf(call.type);
  const uint64_t all = chunk * static_cast<uint64_t>(ranks_);
  const WindowKind kind = isAllReduce && in == out ? WindowKind::LentInPlace : WindowKind::Lent;
  const bool isUponInput = (isAllReduce && in != out && overlap(in, out, chunk)) || (isAllToAll && overlap(in, out, all));
  const auto readers = settings_.lendsPlain ? Published::Readers::OtherProcesses : Published::Readers::Any;
  const auto begin = [&](DevicePtr address, uint64_t bytes) {
    Status refusal = obstacle;
    if (isUponInput) refusal = error(Code::InvalidUsage, "the output lies upon the input");
    if (address % exec::cuda::kVectorBytes != 0)
      refusal = error(Code::InvalidUsage, "a buffer at {:#x} begins between two vectors", address);
    return endpoint_.windows().begin(address, Bytes(bytes), kind, readers, std::move(refusal));
  };
  const auto absent = [&](uint64_t bytes) { return endpoint_.windows().begin(0, Bytes(bytes), kind, readers); };
  const bool isRoot = call.root == rank_.value;
  switch (call.collective) {
    case Collective::AllReduce: return {begin(out, chunk), begin(in, chunk)};
    case Collective::ReduceScatter: return {begin(in, all), nullptr};
    case Collective::Broadcast: return {begin(out, chunk), nullptr};
    case Collective::SendRecv: {
      const Rank peer(call.root);
      const auto& [from, to] = call.receives ? std::pair(peer, rank_) : std::pair(rank_, peer);
      return {endpoint_.messageLoans().begin({from, to, call.sequence}, call.receives ? out : 0, Bytes(chunk), readers, obstacle), nullptr};
    }
    case Collective::Scatter: return {isRoot ? absent(chunk) : begin(out, chunk), nullptr};
    case Collective::Gather: return {isRoot ? begin(out, all) : absent(all), nullptr};
    default: break;
  }
  return {begin(out, all), nullptr};
}

void DeviceWindows::chooseLent(WindowCall& made, const Loan& loan, const tune::Way& kernel) const {
  if (!loan.first->isUsable || (loan.second != nullptr && !loan.second->isUsable)) return;
  WindowCall lent = made;
  lent.window = loan.first;
  if (made.call.collective == Collective::AllReduce) lent.inWindow = loan.second;
  if (isTaken(lent.call, lent.traits(), kernel)) made = std::move(lent);
}

}  // namespace tutti::comm
