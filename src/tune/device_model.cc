#include "tune/device_model.h"

#include <algorithm>
#include <vector>

#include "exec/cuda/brief.h"
#include "exec/cuda/lone.h"

namespace tutti::tune {

using exec::cuda::KernelId;
using exec::record::Algorithm;
using exec::record::Profile;

namespace {

double usOf(double bytes, double gigabytesPerSecond) { return bytes / (gigabytesPerSecond * 1000); }

/// Every byte goes straight from its owner to whom it is for.
bool isOneWay(Collective collective) {
  return collective == Collective::Gather || collective == Collective::Scatter || collective == Collective::AllToAll;
}

/// Two ranks, each of which sends to the other.
Profile profileOfMessages(const Algorithm& algorithm) {
  const connect::Layout pair = connect::Layout::natural(2);
  const std::vector<algo::LayoutView> views = {pair.view(Rank(0), Rank(1)), pair.view(Rank(1), Rank(0))};
  return profileOf(algorithm, views, exec::record::Loans::None, false);
}

}  // namespace

const KernelCost& costOf(const DeviceMachine& machine, const Algorithm& algorithm, KernelId kernel, int32_t ranks) {
  const auto place = static_cast<uint8_t>(&algorithm - exec::record::algorithms().data());
  if (kernel == KernelId::Window && exec::cuda::mayBeLone(place)) return machine.lone;
  if (algorithm.traits.collective == Collective::SendRecv && ranks <= exec::cuda::kMaxLocalRanks) {
    if (kernel == KernelId::Cells) return machine.messages;
    if (kernel == KernelId::Lines) return machine.lineMessages;
  }
  return machine.kernels[static_cast<size_t>(kernel)];
}

double carriedUs(const DeviceMachine& machine, int32_t ranks, uint64_t shareBytes, int32_t parts, int32_t blocks) {
  const CarriedCost& cost = machine.carried;
  const double partBytes = static_cast<double>(shareBytes) / parts;
  const double carryUs = (ranks - 1) * (cost.copyUs + usOf(partBytes, cost.linkGBs));
  const double combineUs = cost.meetUs + usOf(partBytes * (ranks + 1), blocks * cost.blockGBs);
  double carried = parts * carryUs;  // until the engines have brought all contributions, then results
  double combined = 0;
  for (int32_t part = 1; part <= parts; ++part) combined = std::max(combined, part * carryUs) + combineUs;
  // The last part is handed out behind its combination, and those before it not later than engines come to them.
  carried += (parts - 1) * carryUs;
  return machine.launchUs + cost.startUs + std::max(carried, combined + cost.meetUs) + carryUs;
}

const Profile& DeviceModel::profile(const Algorithm& algorithm) {
  if (algorithm.traits.collective != Collective::SendRecv) return profiles_.get(algorithm, exec::record::Loans::None);
  if (messages_.steps == 0) messages_ = profileOfMessages(algorithm);
  return messages_;
}

/// What a rank sends on: the kernel's links, or, where the machine's are less, those of the tracks that so many channels run on. What
/// follows no track reaches peers that are not neighbours there, and has no more than all the rings together.
double DeviceModel::linkGBs(const Algorithm& algorithm, const KernelCost& cost, int32_t channels) const {
  const std::string_view name = algorithm.traits.name;
  const double tracks = name == "ring"    ? layout_.ringGBps(channels)
                        : name == "tree"  ? layout_.treeGBps(channels)
                        : name == "chain" ? layout_.ringGBps(1)  // all channels follow the order of ranks
                                          : layout_.ringGBps(layout_.tracks());
  return tracks > 0 ? std::min(cost.linkGBs, tracks) : cost.linkGBs;
}

Cost DeviceModel::estimate(const Algorithm& algorithm, KernelId kernel, const algo::Geometry& geometry, DataType type,
                           uint64_t pieceBytes) {
  const Profile& p = profile(algorithm);
  const KernelCost& cost = costOf(machine_, algorithm, kernel, ranks_);
  const uint64_t elementBytes = sizeOf(type);
  const auto bytes = static_cast<double>(geometry.totalElems * elementBytes);
  const auto part = static_cast<double>(std::min({geometry.partElems, geometry.chunkElems, geometry.totalElems}) * elementBytes);
  const double blocks = static_cast<double>(geometry.channels) * algorithm.lanes(ranks_);
  const double slices = std::max(1, geometry.slices);
  const bool isWindow = algorithm.traits.needs == algo::Needs::PeerMemory;
  const double hops = p.hops + p.farHops;

  Cost us;
  us.launchUs = machine_.launchUs + cost.startUs + blocks * machine_.blockUs;
  // Constants of the other kernels were measured when nothing was early.
  const bool isLone = kernel == KernelId::LineWindow || &cost == &machine_.lone;
  const bool hasRounds = isLone && algorithm.traits.rounds > 1;
  const bool forwards = hasRounds && kernel == KernelId::LineWindow && exec::cuda::mayForward(geometry, ranks_, elementBytes);
  if (isLone && (blocks > exec::cuda::kMostEarlyBlocks || forwards)) us.launchUs += machine_.lateUs;
  if (hasRounds) us.launchUs += !forwards ? machine_.roundsUs : machine_.forwardUs - (ranks_ > 2 ? 0 : machine_.pairsGainUs);
  const bool isPlain = exec::cuda::kernelInfo(kernel).protocol == exec::cuda::Protocol::Simple && !isWindow;
  if (isPlain && p.steps > 1) us.launchUs += machine_.turnsUs;
  const Collective collective = algorithm.traits.collective;
  const bool isFlow = !isWindow && (collective == Collective::Broadcast || collective == Collective::Reduce);
  us.hopsUs = isFlow && hops > 1 ? cost.hopUs + (hops - 1) * cost.flowHopUs : hops * cost.hopUs;
  double passing = std::max(p.crossing, p.arriving) * bytes;
  double repeated = !hasRounds ? 1 : !forwards ? machine_.roundsBlocks : ranks_ > 2 ? machine_.forwardBlocks : machine_.pairsBlocks;
  if (isWindow) {
    us.messagesUs = p.messages * cost.messageUs;
    us.slicesUs = (slices - 1) * (forwards ? 1 : algorithm.traits.rounds) * cost.roundUs;  // who forwards is in step once a slice
  } else {
    const auto carried = static_cast<double>(std::min(pieceBytes, geometry.sliceElems * elementBytes));
    const double piece = std::clamp(part, 1.0, carried);
    us.slicesUs = (std::max(part / piece, slices) - 1) * p.steps * cost.jobUs;
    // Where the same bytes go from rank to rank, the first piece does so before the last one sets out; where every line says that it has
    // come, the first lines do.
    const double passed = cost.flowBytes > 0 ? std::min(piece, static_cast<double>(cost.flowBytes)) : piece;
    const double first = hops * std::min(passed * geometry.channels, bytes);
    if (passing > 0 && first > passing) {
      repeated = first / passing;
      passing = first;
    }
  }
  const bool goesByTurns = isPlain && ranks_ > 2 && std::string_view(algorithm.traits.name) == "pat";
  us.trafficUs = usOf(passing, linkGBs(algorithm, cost, geometry.channels) * (goesByTurns ? machine_.byTurnsLinks : 1));
  const double blockGBs = isPlain && isOneWay(algorithm.traits.collective) ? machine_.oneWay * cost.blockGBs : cost.blockGBs;
  us.trafficUs += repeated * usOf(p.lane * bytes, geometry.channels * blockGBs);
  return us;
}

}  // namespace tutti::tune
