#include "plan/link_planner.h"

#include <algorithm>

namespace tutti::plan {

using exec::record::Algorithm;
using tune::NcclProtocol;

namespace {

/// Fewer channels are preferred to what is faster by less than this.
constexpr double kWorthwhile = 1.01;

/// With every reason once: what the user forbids is among them.
Status nothingLeft(Collective collective, const std::vector<Rejected>& rejected) {
  std::string causes;
  for (const Rejected& one : rejected)
    if (causes.find(one.reason) == std::string::npos) causes += format("{}{}", causes.empty() ? ": " : "; ", one.reason);
  return error(Code::InvalidUsage, "nothing carries out {} with these settings{}", name(collective), causes);
}

}  // namespace

struct LinkPlanner::Option {
  const Algorithm* algorithm = nullptr;
  NcclProtocol protocol = NcclProtocol::Simple;
  int32_t channels = 0;
  tune::Cost cost;
};

/// What keeps an algorithm from a protocol; empty: nothing.
std::string LinkPlanner::obstacle(const Algorithm& algorithm, NcclProtocol protocol, Collective collective) const {
  if (!settings_.protocols.allows(collective, name(protocol))) return format("{} forbids it", settings_.protocols.source());
  if (protocol == NcclProtocol::LL128 && !model_.fabric().keepsLines)
    return "needs lines of 128 bytes that arrive in order: NVLink between all GPUs of a node";
  if (tune::familyOf(algorithm) == tune::NcclAlgorithm::Pat && protocol != NcclProtocol::Simple) return "PAT is there with Simple alone";
  return {};
}

/// The fastest number of channels, or the smallest that is hardly slower.
std::optional<LinkPlanner::Option> LinkPlanner::best(const Algorithm& algorithm, NcclProtocol protocol, uint64_t bytes) {
  // Only algorithms that have a family come here.
  const int32_t there = model_.linesOf(tune::familyOf(algorithm).value()).channels;  // NOLINT(bugprone-unchecked-optional-access)
  const int32_t most = std::clamp(settings_.maxChannels, 1, std::max(there, 1));
  const int32_t least = std::clamp(settings_.minChannels, 1, most);
  std::vector<Option> options;
  double leastUs = 0;
  for (int32_t channels = least;; channels = std::min(2 * channels, most)) {
    const auto cost = model_.estimate(algorithm, protocol, channels, bytes);
    if (!cost) return std::nullopt;
    options.push_back({&algorithm, protocol, channels, *cost});
    leastUs = options.size() == 1 ? cost->sum() : std::min(leastUs, cost->sum());
    if (channels == most) break;
  }
  return *std::find_if(options.begin(), options.end(), [&](const Option& o) { return o.cost.sum() <= leastUs * kWorthwhile; });
}

Result<Explanation> LinkPlanner::explain(const Shape& shape) {
  const auto allowed = tune::candidates(shape.collective, settings_.restrictions, settings_.deterministic);
  if (!allowed) return tl::unexpected(allowed.error());
  const tune::Fabric& fabric = model_.fabric();
  const uint64_t blocks = shape.collective == Collective::AllReduce || shape.collective == Collective::Broadcast ||
                                  shape.collective == Collective::Reduce
                              ? 1
                              : static_cast<uint64_t>(fabric.ranks);
  Explanation result;
  result.bytes = shape.count * sizeOf(shape.type) * blocks;
  result.ranks = fabric.ranks;
  result.nodes = fabric.nodes;

  std::vector<Option> options;
  for (const Algorithm& a : exec::record::algorithms()) {
    if (a.traits.collective != shape.collective) continue;
    const std::string own(a.traits.name);
    const bool isAllowed = std::find(allowed->begin(), allowed->end(), &a) != allowed->end();
    if (!isAllowed || !tune::familyOf(a)) {
      result.rejected.push_back({own, "", "", 0, -1,
                                 !isAllowed ? tune::whyNot(a, settings_.restrictions)
                                 : a.traits.needs == algo::Needs::PeerMemory
                                     ? format("needs memory that all ranks map, on one host, at most {} ranks", exec::cuda::kMaxLocalRanks)
                                     : "these constants have no numbers for it"});
      continue;
    }
    for (int p = 0; p < tune::kNcclProtocols; ++p) {
      const auto protocol = static_cast<NcclProtocol>(p);
      std::string why = obstacle(a, protocol, shape.collective);
      const auto option = why.empty() ? best(a, protocol, result.bytes) : std::nullopt;
      if (option) {
        options.push_back(*option);
      } else {
        if (why.empty()) why = "these constants have no numbers for it";
        result.rejected.push_back({own, "", std::string(name(protocol)), 0, -1, std::move(why)});
      }
    }
  }
  if (options.empty()) return tl::unexpected(nothingLeft(shape.collective, result.rejected));
  const auto chosen = std::min_element(options.begin(), options.end(),
                                       [](const Option& a, const Option& b) { return a.cost.sum() < b.cost.sum(); });
  result.chosen.algorithm = chosen->algorithm->traits.name;
  result.chosen.protocol = name(chosen->protocol);
  result.chosen.channels = chosen->channels;
  result.chosen.rings = fabric.ringOrders;
  result.chosen.lanes = chosen->algorithm->lanes(fabric.ranks);
  result.chosen.cost = chosen->cost;
  result.chosen.estimatedUs = chosen->cost.sum();
  for (const Option& option : options) {
    if (&option == &*chosen) continue;
    const double us = option.cost.sum();
    result.rejected.push_back({std::string(option.algorithm->traits.name), "", std::string(name(option.protocol)), option.channels, us,
                               slower(us, result.chosen.estimatedUs)});
  }
  return result;
}

}  // namespace tutti::plan
