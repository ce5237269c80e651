#include "tune/link_model.h"

#include <algorithm>

namespace tutti::tune {

using exec::record::Algorithm;
using exec::record::Profile;

/// What is left of the channels' speed: NCCL's corrections, by family and protocol.
double LinkModel::channelsGBps(NcclAlgorithm family, NcclProtocol protocol, int32_t channels, double eachGBps) const {
  const auto generation = static_cast<size_t>(fabric_.generation);
  const auto scale = static_cast<size_t>(std::min(fabric_.nodes, kScales) - 1);
  const auto most = [&](const std::array<ByScale, kGenerations>& table) { return channels * table[generation][scale]; };
  const LinkConstants& c = constants_;
  const double all = channels * eachGBps;
  const double ll = c.llGBs[generation][scale];
  if (family == NcclAlgorithm::Pat) return all * c.pat;
  if (family == NcclAlgorithm::Ring) {
    switch (protocol) {
      case NcclProtocol::LL: return std::min(all * c.ringLl, ll);
      case NcclProtocol::LL128: return std::min(all * c.ringLl128, most(c.ringLl128ChannelGBs));
      case NcclProtocol::Simple: return all * c.ringSimple;
    }
  }
  const double tree = std::min(all * c.tree, most(c.treeChannelGBs)) * (fabric_.trees.oneChain ? c.oneChain : 1);
  switch (protocol) {
    case NcclProtocol::LL: return std::min(tree * c.treeLl, ll);
    case NcclProtocol::LL128:
      return std::min(tree * (fabric_.nodes == 1 ? c.treeLl128 : c.treeLl128Nodes), most(c.treeLl128ChannelGBs));
    case NcclProtocol::Simple: break;
  }
  return tree;
}

std::optional<Cost> LinkModel::estimate(const Algorithm& algorithm, NcclProtocol protocol, int32_t channels, uint64_t bytes) {
  const auto family = familyOf(algorithm);
  if (!family) return std::nullopt;
  const auto f = static_cast<size_t>(*family);
  const auto p = static_cast<size_t>(protocol);
  const Lines& lines = linesOf(*family);
  const double hopUs = constants_.hopUs[static_cast<size_t>(lines.link)][f][p];
  if (constants_.baseUs[f][p] <= 0 || hopUs <= 0 || channels < 1) return std::nullopt;

  const Profile& profile = profiles_.get(algorithm, exec::record::Loans::None);
  const double farUs = constants_.hopUs[static_cast<size_t>(LinkKind::Net)][f][p] + lines.netUs;
  Cost cost;
  cost.launchUs = constants_.baseUs[f][p];
  cost.hopsUs = profile.hops * hopUs + profile.farHops * farUs;
  const bool isPlateau = *family == NcclAlgorithm::Ring && protocol == NcclProtocol::Simple && fabric_.nodes > 1 &&
                         algorithm.traits.collective == Collective::AllReduce &&
                         bytes / static_cast<uint64_t>(channels * fabric_.ranks) >= 64;
  if (isPlateau) cost.slicesUs = (constants_.plateau - 1) * (cost.launchUs + cost.hopsUs);
  const auto us = [&](double share, double eachGBps) {
    const double gbps = channelsGBps(*family, protocol, channels, eachGBps);
    return share <= 0 || gbps <= 0 ? 0 : share * static_cast<double>(bytes) / (gbps * 1000);
  };
  cost.trafficUs = us(profile.crossing, lines.intraGBps);
  if (fabric_.nodes > 1) cost.trafficUs = std::max(cost.trafficUs, us(profile.leaving, lines.interGBps));
  return cost;
}

}  // namespace tutti::tune
