#include "topo/search_exact.h"

#include <algorithm>
#include <numeric>

namespace tutti::topo {

namespace {

constexpr int kSmallGpus = 5;
constexpr size_t kMostKinds = 400;
constexpr size_t kMostPairs = 4000;

// Of lists by place.
void addLoads(const std::vector<Load>& a, const std::vector<Load>& b, std::vector<Load>& sum) {
  sum.reserve(a.size() + b.size());
  auto one = a.begin();
  auto other = b.begin();
  while (one != a.end() && other != b.end()) {
    if (one->place == other->place) {
      sum.push_back({one->place, one->weight + other->weight});
      ++one;
      ++other;
    } else {
      sum.push_back(one->place < other->place ? *one++ : *other++);
    }
  }
  sum.insert(sum.end(), one, a.end());
  sum.insert(sum.end(), other, b.end());
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
  const auto isLighter = [](const Kind& a, const Kind& b) { return a.total < b.total; };
  std::stable_sort(kinds_.begin(), kinds_.end(), isLighter);
  if (!inPairs() || kinds_.size() > kMostKinds) return;
  listPairs(kinds_);
  std::stable_sort(pairs_.begin(), pairs_.end(), isLighter);
}

void Exact::listPairs(const std::vector<Kind>& singles) {
  const auto orderOf = [&](const Kind& kind) -> const Order& { return orders_[static_cast<size_t>(kind.order)]; };
  const auto nets = static_cast<size_t>(problem_.nets());
  std::vector<size_t> users(nets * nets, 0);  // by way in and way out
  size_t pairs = 0;
  for (const Kind& single : singles) {
    const auto in = static_cast<size_t>(orderOf(single).netIn);
    const auto out = static_cast<size_t>(orderOf(single).netOut);
    pairs += users[out * nets + in] + (in == out ? 1 : 0);
    ++users[in * nets + out];
  }
  tooMany_ = pairs > kMostPairs;
  if (tooMany_) return;
  for (size_t i = 0; i < singles.size(); ++i) {
    const Order& one = orderOf(singles[i]);
    for (size_t j = i; j < singles.size(); ++j) {
      const Order& other = orderOf(singles[j]);
      if (one.netIn != other.netOut || one.netOut != other.netIn) continue;
      Kind& pair = pairs_.emplace_back();
      pair.order = singles[i].order;
      pair.partner = singles[j].order;
      pair.total = singles[i].total + singles[j].total;
      addLoads(singles[i].loads, singles[j].loads, pair.loads);
    }
  }
}

std::vector<Order> Exact::pack(const Goal& goal, int64_t& steps, bool& complete) {
  complete = false;
  listAll();
  perKind_ = inPairs() && goal.channels > 1 ? 2 : 1;
  const std::vector<Kind>& kinds = perKind_ == 2 ? pairs_ : kinds_;
  if (kinds_.size() > kMostKinds || tooMany_ || goal.channels % perKind_ != 0) return {};
  room_ = problem_.capacity();
  for (int64_t& room : room_) room /= goal.speedMBps;
  fitting_.clear();
  for (const Kind& kind : kinds) {
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
  std::vector<Load> sums;
  for (const auto& [hop, parts] : hops) {
    if (hop->type > mode_.intra && hop->type > mode_.inter) return;
    for (const Load& load : problem_.loads(*hop)) sums.push_back({load.place, load.weight * parts / 2});
  }
  for (size_t i = order.gpus.size() - 1; i < hops.size(); ++i) {
    if (order.netIn >= 0 && hops[i].first->type > mode_.inter) return;
  }
  std::sort(sums.begin(), sums.end(), [](const Load& a, const Load& b) { return a.place < b.place; });
  Kind made;
  made.order = static_cast<int32_t>(orders_.size());
  for (const Load& load : sums) {
    made.total += load.weight;
    if (!made.loads.empty() && made.loads.back().place == load.place) made.loads.back().weight += load.weight;
    else made.loads.push_back(load);
  }
  std::vector<int32_t> key;
  key.reserve(2 * made.loads.size() + 3);
  for (const Load& load : made.loads) key.insert(key.end(), {load.place, load.weight});
  if (inPairs()) key.insert(key.end(), {-1, order.netIn, order.netOut});
  if (byLoads_.try_emplace(std::move(key), std::move(made)).second) orders_.push_back(order);
}

// Chooses how often the orders from `index` on are used; `chosen` so far.
void Exact::descend(size_t index, int chosen) {
  steps_ -= 1 + static_cast<int64_t>(cuts_.all().size()) / 8;
  if (steps_ < 0 || bestCount_ >= target_) return;
  if (chosen > bestCount_) note();
  if (index == fitting_.size() || !cuts_.let(room_, bestCount_ - chosen + 1, tight_)) return;
  const Kind& order = *fitting_[index];
  int64_t most = (target_ - chosen) / perKind_;
  for (const Load& load : order.loads) most = std::min(most, room_[static_cast<size_t>(load.place)] / load.weight);
  for (const Load& load : order.loads) room_[static_cast<size_t>(load.place)] -= most * load.weight;
  for (int64_t used = most; used >= 0; --used) {
    count_[index] = static_cast<int>(used);
    descend(index + 1, chosen + perKind_ * static_cast<int>(used));
    if (used == 0) break;
    for (const Load& load : order.loads) room_[static_cast<size_t>(load.place)] += load.weight;
  }
}

void Exact::note() {
  std::vector<Order> orders;
  for (size_t i = 0; i < fitting_.size(); ++i) {
    for (int used = 0; used < count_[i]; ++used) {
      for (const int32_t number : {fitting_[i]->order, fitting_[i]->partner}) {
        if (number >= 0) orders.push_back(orders_[static_cast<size_t>(number)]);
      }
    }
  }
  bestCount_ = static_cast<int>(orders.size());
  best_ = std::move(orders);
}

}  // namespace tutti::topo
