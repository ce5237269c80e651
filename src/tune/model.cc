#include "tune/model.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tutti::tune {

using exec::record::Algorithm;
using exec::record::Profile;

Profile Model::record(const Algorithm& algorithm, int32_t ranks, bool lends) const {
  // The natural order, with nodes of the real size where they fit; a root in the middle, so that it does not matter which is the real one.
  // Where hosts differ in size, each rank counts as one.
  const int32_t locals = machine_.spansHosts && layout_.nodes() == 1 ? 1 : layout_.ranks() / layout_.nodes();
  const connect::Layout sample = connect::Layout::natural(ranks, locals);
  std::vector<algo::LayoutView> views;
  for (int32_t r = 0; r < ranks; ++r) views.push_back(sample.view(Rank(r), Rank(ranks / 2)));
  return profileOf(algorithm, views, lends);
}

const Profile& Model::profile(const Algorithm& algorithm, bool lends) {
  const auto [at, isNew] = profiles_.try_emplace({&algorithm, lends});
  Profile& known = at->second;
  if (!isNew) return known;
  const int32_t ranks = layout_.ranks();
  known = record(algorithm, std::min(ranks, kMostRanks), lends);
  if (ranks <= kMostRanks) return known;
  // What doubled from half as many ranks grows with their number, what did not with its logarithm. Traffic is that of all ranks: it grows
  // with their number at least.
  const Profile half = record(algorithm, kMostRanks / 2, lends);
  const double ratio = static_cast<double>(ranks) / kMostRanks;
  const auto extend = [&](int32_t before, int32_t now) {
    const double more = 2 * now > 3 * before ? now * (ratio - 1) : (now - before) * std::log2(ratio);
    return static_cast<int32_t>(std::min(now + more, 2e9));
  };
  const double growth = std::log2(std::max(known.traffic / half.traffic, 1.0));
  const double busiest = std::log2(std::max(known.busiest / half.busiest, 1.0));
  known = {extend(half.farHops, known.farHops), extend(half.hops, known.hops), extend(half.messages, known.messages),
           known.traffic * std::pow(ratio, growth), known.busiest * std::pow(ratio, busiest), known.crossing,
           known.leaving};
  return known;
}

double Model::estimateUs(const Algorithm& algorithm, const algo::Geometry& geometry, uint64_t bytes, bool lends) {
  const Profile& p = profile(algorithm, lends);
  const int32_t ranks = layout_.ranks();
  const double crowding = std::max(1.0, static_cast<double>(ranks) / machine_.cores);
  const double hopNs = crowding > 1 ? machine_.switchNs * crowding : machine_.hopNs;
  const double slices = std::max(1, geometry.slices);
  // Windows are in lockstep, with a bank to spare: a round costs part of a hop. Pipes go on while the next slices are on their way.
  const bool window = algorithm.traits.needs == algo::Needs::PeerMemory;
  const double further = (slices - 1) * (window ? hopNs / 2 * algorithm.traits.rounds : hopNs / 8);
  // The cores share the work, but no rank's part of it.
  const double worked = std::max(p.traffic / std::min(ranks, machine_.cores), p.busiest);
  const double messageNs = machine_.messageNs + (window || bytes > kSmallBytes ? 0 : machine_.pipeNs);
  // What is small stays in the caches of its core but for what others get: written once, read once.
  const bool isSmall = bytes <= kSmallBytes && crowding <= 1 && p.crossing > 0;
  const double share = isSmall ? std::min(worked, 2 * p.crossing) : worked;
  const double traffic = share * static_cast<double>(bytes) / machine_.bytesPerNs;
  if (machine_.spansHosts) {
    const double far = p.farHops * machine_.farHopNs + (slices - 1) * machine_.farHopNs / 8;
    const double leaving = p.leaving * static_cast<double>(bytes) / machine_.farBytesPerNs;
    return (far + p.hops * hopNs + p.messages * messageNs * crowding + std::max(traffic, leaving)) / 1000;
  }
  return ((p.farHops + p.hops) * hopNs + p.messages * messageNs * crowding + further + traffic) / 1000;
}

}  // namespace tutti::tune
