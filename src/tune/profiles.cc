#include "tune/profiles.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tutti::tune {

using exec::record::Algorithm;
using exec::record::Loans;
using exec::record::Profile;

Profile Profiles::record(const Algorithm& algorithm, int32_t ranks, Loans loans) const {
  const connect::Layout sample = connect::Layout::natural(ranks, localRanks_);
  std::vector<algo::LayoutView> views;
  for (int32_t r = 0; r < ranks; ++r) views.push_back(sample.view(Rank(r), Rank(ranks / 2)));
  return profileOf(algorithm, views, loans, passesByReference_);
}

const Profile& Profiles::get(const Algorithm& algorithm, Loans loans) {
  const auto [at, isNew] = profiles_.try_emplace({&algorithm, loans});
  Profile& known = at->second;
  if (!isNew) return known;
  known = record(algorithm, std::min(ranks_, kMostRanks), loans);
  if (ranks_ <= kMostRanks) return known;
  // What doubled from half as many ranks grows with their number, what did not with its logarithm. Traffic is that of all ranks: it grows
  // with their number at least.
  const Profile half = record(algorithm, kMostRanks / 2, loans);
  const double ratio = static_cast<double>(ranks_) / kMostRanks;
  const auto extend = [&](int32_t before, int32_t now) {
    const double more = 2 * now > 3 * before ? now * (ratio - 1) : (now - before) * std::log2(ratio);
    return static_cast<int32_t>(std::min(now + more, 2e9));
  };
  const double growth = std::log2(std::max(known.traffic / half.traffic, 1.0));
  const double busiest = std::log2(std::max(known.busiest / half.busiest, 1.0));
  const double lane = std::log2(std::max(known.lane / half.lane, 1.0));
  known.farHops = extend(half.farHops, known.farHops);
  known.hops = extend(half.hops, known.hops);
  known.messages = extend(half.messages, known.messages);
  known.steps = extend(half.steps, known.steps);
  known.traffic *= std::pow(ratio, growth);
  known.busiest *= std::pow(ratio, busiest);
  known.lane *= std::pow(ratio, lane);
  return known;
}

}  // namespace tutti::tune
