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
  // Whole nodes, two at least. An algorithm for few of them is recorded as it is.
  const bool hasNodes = localRanks_ > 1 && localRanks_ < ranks_;
  const int32_t unit = hasNodes ? localRanks_ : 1;
  const int32_t units = std::max(2, kMostRanks / unit);
  const int32_t most = algorithm.traits.mostAtOnce > 0 ? ranks_ : units * unit;
  known = record(algorithm, std::min(ranks_, most), loans);
  if (ranks_ <= most) return known;
  // What grew as much as the ranks, from about half as many, goes on so; what did not grows with their logarithm. Traffic is that of all
  // ranks: it grows with their number at least.
  const int32_t fewer = units / 2 * unit;
  const Profile half = record(algorithm, fewer, loans);
  const double ratio = static_cast<double>(ranks_) / most;
  const double step = static_cast<double>(most) / fewer;
  const auto extend = [&](int32_t before, int32_t now) {
    const double more = 2 * now > (1 + step) * before ? now * (ratio - 1) : (now - before) * std::log2(ratio) / std::log2(step);
    return static_cast<int32_t>(std::min(now + more, 2e9));
  };
  const auto power = [step](double before, double now) { return std::log2(std::max(now / before, 1.0)) / std::log2(step); };
  const double growth = power(half.traffic, known.traffic);
  const double busiest = power(half.busiest, known.busiest);
  const double lane = power(half.lane, known.lane);
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
