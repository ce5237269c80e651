#include "topo/search_speed.h"

#include <algorithm>
#include <utility>

namespace tutti::topo {

namespace {

std::vector<int64_t> distinct(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end(), std::greater<>());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

}  // namespace

int64_t roughBound(const Cuts& cuts, const Limits& limits) {
  int64_t least = limits.ceilingMBps * limits.maxChannels;
  for (const PlainCut& cut : cuts.plain()) {
    int64_t sum = 0;
    for (const PlainCut::Part& part : cut.parts) {
      for (const PlainCut::Links& some : part.links) sum += (some.capacity / some.weight + 1) * some.count * part.count;
    }
    least = std::min(least, sum / cut.perChannel + 1);
  }
  return least;
}

std::vector<Goal> goals(const Cuts& cuts, const Limits& limits, int64_t worth) {
  std::vector<Goal> found;
  const int64_t rough = roughBound(cuts, limits);
  if (rough <= worth) return found;
  // What some link holds, in MB/s × hops, and the most hops of it that matter: the larger of those for equal links.
  std::vector<std::pair<int64_t, int64_t>> wholes;
  for (const PlainCut& cut : cuts.plain()) {
    const int64_t parts = cut.halves ? 2 : 1;
    for (const PlainCut::Part& part : cut.parts) {
      for (const PlainCut::Links& some : part.links)
        wholes.emplace_back(parts * some.capacity / some.weight, parts * cut.perChannel * limits.maxChannels);
    }
  }
  std::sort(wholes.begin(), wholes.end(), std::greater<>());
  // Between two of these speeds no cut lets another number of channels pass, so that the fastest of each stretch stands for it.
  std::vector<int64_t> speeds = {limits.ceilingMBps};
  const int64_t slowest = std::max(limits.floorMBps, worth / limits.maxChannels);
  int64_t before = -1;
  for (const auto& [whole, most] : wholes) {
    if (std::exchange(before, whole) == whole) continue;
    for (int64_t hops = std::max<int64_t>(1, whole / limits.ceilingMBps); hops <= most; ++hops) {
      const int64_t speed = whole / hops;
      if (speed < slowest) break;
      if (speed < limits.ceilingMBps && rough / speed * speed > worth) speeds.push_back(speed);
    }
  }
  for (const int64_t speed : distinct(std::move(speeds))) {
    const Goal goal{speed, cuts.mostAt(speed, limits.maxChannels)};
    if (goal.channels >= limits.minChannels && goal.value() > worth) found.push_back(goal);
  }
  std::stable_sort(found.begin(), found.end(), [](const Goal& a, const Goal& b) { return a.value() > b.value(); });
  return found;
}

int64_t fastestFor(const Cuts& cuts, const Limits& limits, int channels) {
  int64_t fits = 0;
  for (int64_t step = int64_t{1} << 20; step > 0; step /= 2) {
    if (fits + step <= limits.ceilingMBps && cuts.mostAt(fits + step, channels) >= channels) fits += step;
  }
  return fits;
}

Speeds fastest(const Problem& problem, const Mode& mode, const std::vector<Order>& orders, int64_t ceilingInter, int64_t ceilingIntra) {
  std::vector<int64_t> intra(problem.capacity().size(), 0);
  std::vector<int64_t> inter = intra;
  const auto add = [&](std::vector<int64_t>& sum, const Hop& hop, int parts) {
    for (const Load& load : problem.loads(hop)) sum[static_cast<size_t>(load.place)] += static_cast<int64_t>(load.weight) * parts / 2;
  };
  const bool balanced = mode.pattern == Pattern::BalancedTree;
  for (const Order& order : orders) {
    for (size_t i = 0; i + 1 < order.gpus.size(); ++i) add(intra, problem.between(order.gpus[i], order.gpus[i + 1]), 2);
    if (order.netIn < 0) {
      if (mode.pattern == Pattern::Ring && order.gpus.size() > 1) add(intra, problem.between(order.gpus.back(), order.gpus.front()), 2);
      continue;
    }
    add(inter, problem.in(order.netIn, order.gpus.front()), 2);
    if (mode.pattern == Pattern::Ring) add(inter, problem.out(order.gpus.back(), order.netOut), 2);
    else if (mode.pattern != Pattern::SplitTree) add(inter, problem.out(order.gpus.front(), order.netOut), balanced ? 1 : 2);
    if (balanced || mode.pattern == Pattern::SplitTree) add(inter, problem.out(order.gpus[1], order.netOut), balanced ? 1 : 2);
  }
  Speeds speeds{ceilingInter, ceilingInter};
  for (size_t i = 0; i < intra.size(); ++i) {
    const int64_t sum = intra[i] + inter[i];
    if (sum > 0) speeds.interMBps = std::min(speeds.interMBps, problem.capacity()[i] / sum);
  }
  speeds.intraMBps = speeds.interMBps;
  if (!problem.inter() || mode.pattern == Pattern::Ring) return speeds;
  speeds.intraMBps = std::min(2 * speeds.interMBps, std::max(ceilingIntra, speeds.interMBps));
  for (size_t i = 0; i < intra.size(); ++i) {
    if (intra[i] > 0) speeds.intraMBps = std::min(speeds.intraMBps, (problem.capacity()[i] - inter[i] * speeds.interMBps) / intra[i]);
  }
  return speeds;
}

}  // namespace tutti::topo
