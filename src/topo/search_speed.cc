#include "topo/search_speed.h"

#include <algorithm>

namespace tutti::topo {

namespace {

std::vector<int64_t> distinct(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end(), std::greater<>());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

}  // namespace

int64_t roughBound(const Problem& problem, const Cuts& cuts, const Limits& limits) {
  int64_t least = limits.ceilingMBps * limits.maxChannels;
  for (const Cut& cut : cuts.all()) {
    int64_t sum = 0;
    for (const Load& link : cut.links) sum += problem.capacity()[static_cast<size_t>(link.place)] / link.weight + 1;
    least = std::min(least, sum / cut.perChannel + 1);
  }
  return least;
}

std::vector<Goal> goals(const Problem& problem, const Cuts& cuts, const Limits& limits, int64_t worth) {
  std::vector<Goal> found;
  const int64_t rough = roughBound(problem, cuts, limits);
  if (rough <= worth) return found;
  // Between two of these speeds no cut lets another number of channels pass, so that the fastest of each stretch stands for it.
  std::vector<int64_t> speeds = {limits.ceilingMBps};
  const int64_t slowest = std::max(limits.floorMBps, worth / limits.maxChannels);
  for (const Cut& cut : cuts.all()) {
    const int64_t parts = cut.halves ? 2 : 1;
    for (const Load& link : cut.links) {
      const int64_t whole = parts * problem.capacity()[static_cast<size_t>(link.place)] / link.weight;
      for (int64_t hops = std::max<int64_t>(1, whole / limits.ceilingMBps); hops <= parts * cut.perChannel * limits.maxChannels; ++hops) {
        const int64_t speed = whole / hops;
        if (speed < slowest) break;
        if (speed < limits.ceilingMBps && rough / speed * speed > worth) speeds.push_back(speed);
      }
    }
  }
  std::vector<int64_t> room(problem.capacity().size());
  for (const int64_t speed : distinct(std::move(speeds))) {
    for (size_t i = 0; i < room.size(); ++i) room[i] = problem.capacity()[i] / speed;
    const Goal goal{speed, cuts.most(room, limits.maxChannels)};
    if (goal.channels >= limits.minChannels && goal.value() > worth) found.push_back(goal);
  }
  std::stable_sort(found.begin(), found.end(), [](const Goal& a, const Goal& b) { return a.value() > b.value(); });
  return found;
}

int64_t fastestFor(const Problem& problem, const Cuts& cuts, const Limits& limits, int channels) {
  int64_t fits = 0;
  std::vector<int64_t> room(problem.capacity().size());
  for (int64_t step = int64_t{1} << 20; step > 0; step /= 2) {
    if (fits + step > limits.ceilingMBps) continue;
    for (size_t i = 0; i < room.size(); ++i) room[i] = problem.capacity()[i] / (fits + step);
    if (cuts.most(room, channels) >= channels) fits += step;
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
