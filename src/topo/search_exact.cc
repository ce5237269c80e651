#include "topo/search_exact.h"

#include <algorithm>
#include <numeric>

namespace tutti::topo {

namespace {

constexpr int kSmallGpus = 5;
constexpr size_t kMostKinds = 400;

// Each channel followed by one that uses its nets the other way round; what finds no partner is left out, but for a single one.
std::vector<Order> paired(std::vector<Order> orders) {
  std::vector<Order> sorted;
  std::vector<bool> used(orders.size(), false);
  for (size_t i = 0; i < orders.size(); ++i) {
    for (size_t j = i + 1; j < orders.size() && !used[i]; ++j) {
      if (used[j] || orders[j].netIn != orders[i].netOut || orders[j].netOut != orders[i].netIn) continue;
      used[i] = used[j] = true;
      sorted.push_back(orders[i]);
      sorted.push_back(orders[j]);
    }
  }
  if (sorted.empty() && !orders.empty()) sorted.push_back(orders[0]);
  return sorted;
}

}  // namespace

bool Exact::isSmall() const {
  const int nets = problem_.nets();
  return problem_.gpus() <= kSmallGpus && nets * (mode_.crossNic == CrossNic::Never ? 1 : nets) <= 16;
}

void Exact::listAll() {
  if (listed_) return;
  listed_ = true;
  std::vector<int16_t> gpus(static_cast<size_t>(problem_.gpus()));
  std::iota(gpus.begin(), gpus.end(), int16_t{0});
  const bool turns = mode_.pattern == Pattern::Ring && !problem_.inter();  // a ring has no first GPU
  do {
    if (turns && gpus[0] != 0) break;
    listEnds(gpus);
  } while (byLoads_.size() <= kMostKinds && std::next_permutation(gpus.begin(), gpus.end()));
  for (auto& [key, found] : byLoads_) kinds_.push_back(std::move(found));
  std::stable_sort(kinds_.begin(), kinds_.end(), [](const Kind& a, const Kind& b) { return a.total < b.total; });
}

std::vector<Order> Exact::pack(const Goal& goal, int64_t& steps, bool& complete) {
  complete = false;
  listAll();
  if (kinds_.size() > kMostKinds) return {};
  room_ = problem_.capacity();
  for (int64_t& room : room_) room /= goal.speedMBps;
  fitting_.clear();
  for (const Kind& kind : kinds_) {
    if (std::all_of(kind.loads.begin(), kind.loads.end(),
                    [&](const Load& load) { return load.weight <= room_[static_cast<size_t>(load.place)]; })) {
      fitting_.push_back(&kind);
    }
  }
  target_ = goal.channels;
  bestCount_ = goal.channels - 1;
  steps_ = steps;
  best_.clear();
  count_.assign(fitting_.size(), 0);
  descend(0, 0);
  complete = steps_ >= 0;
  steps = std::max<int64_t>(steps_, 0);
  return std::move(best_);
}

void Exact::listEnds(const std::vector<int16_t>& gpus) {
  for (size_t i = 0; i + 1 < gpus.size(); ++i) {
    if (problem_.between(gpus[i], gpus[i + 1]).type > mode_.intra) return;
  }
  if (!problem_.inter()) return list({gpus, -1, -1});
  for (int in = 0; in < problem_.nets(); ++in) {
    if (problem_.in(in, gpus[0]).type > mode_.inter) continue;
    for (int out = 0; out < problem_.nets(); ++out) {
      if (problem_.mayLeaveBy(mode_, in, out)) list({gpus, static_cast<int16_t>(in), static_cast<int16_t>(out)});
    }
  }
}

// Keeps the order when none before it loads everything alike (and, in pairs, uses the same nets).
void Exact::list(const Order& order) {
  std::vector<std::pair<const Hop*, int>> hops;
  const bool ring = mode_.pattern == Pattern::Ring;
  for (size_t i = 0; i + 1 < order.gpus.size(); ++i) hops.emplace_back(&problem_.between(order.gpus[i], order.gpus[i + 1]), 2);
  if (order.netIn < 0) {
    if (ring && order.gpus.size() > 1) {
      if (problem_.between(order.gpus.back(), order.gpus[0]).type > mode_.intra) return;
      hops.emplace_back(&problem_.between(order.gpus.back(), order.gpus[0]), 2);
    }
  } else {
    hops.emplace_back(&problem_.in(order.netIn, order.gpus[0]), 2);
    const bool balanced = mode_.pattern == Pattern::BalancedTree;
    const bool split = mode_.pattern == Pattern::SplitTree;
    if (ring) hops.emplace_back(&problem_.out(order.gpus.back(), order.netOut), 2);
    else if (!split) hops.emplace_back(&problem_.out(order.gpus[0], order.netOut), balanced ? 1 : 2);
    if (balanced || split) hops.emplace_back(&problem_.out(order.gpus[1], order.netOut), balanced ? 1 : 2);
  }
  std::map<int32_t, int32_t> sums;
  for (const auto& [hop, parts] : hops) {
    if (hop->type > mode_.intra && hop->type > mode_.inter) return;
    for (const Load& load : problem_.loads(*hop)) sums[load.place] += load.weight * parts / 2;
  }
  for (size_t i = order.gpus.size() - 1; i < hops.size(); ++i) {
    if (order.netIn >= 0 && hops[i].first->type > mode_.inter) return;
  }
  std::vector<int32_t> key;
  Kind made;
  made.order = order;
  for (const auto& [place, weight] : sums) {
    key.push_back(place);
    key.push_back(weight);
    made.loads.push_back({place, weight});
    made.total += weight;
  }
  if (pairs()) key.insert(key.end(), {-1, order.netIn, order.netOut});
  byLoads_.emplace(std::move(key), std::move(made));
}

// Chooses how often the orders from `index` on are used; `chosen` so far.
void Exact::descend(size_t index, int chosen) {
  steps_ -= 1 + static_cast<int64_t>(cuts_.all().size()) / 8;
  if (steps_ < 0 || bestCount_ >= target_) return;
  if (chosen > bestCount_) note();
  if (index == fitting_.size() || chosen + cuts_.most(room_, target_ - chosen) <= bestCount_) return;
  const Kind& order = *fitting_[index];
  int64_t most = target_ - chosen;
  for (const Load& load : order.loads) most = std::min(most, room_[static_cast<size_t>(load.place)] / load.weight);
  for (const Load& load : order.loads) room_[static_cast<size_t>(load.place)] -= most * load.weight;
  for (int64_t used = most; used >= 0; --used) {
    count_[index] = static_cast<int>(used);
    descend(index + 1, chosen + static_cast<int>(used));
    if (used == 0) break;
    for (const Load& load : order.loads) room_[static_cast<size_t>(load.place)] += load.weight;
  }
}

void Exact::note() {
  std::vector<Order> orders;
  for (size_t i = 0; i < fitting_.size(); ++i) orders.insert(orders.end(), static_cast<size_t>(count_[i]), fitting_[i]->order);
  if (pairs()) orders = paired(std::move(orders));
  if (static_cast<int>(orders.size()) <= bestCount_) return;
  bestCount_ = static_cast<int>(orders.size());
  best_ = std::move(orders);
}

}  // namespace tutti::topo
