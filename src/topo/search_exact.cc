#include "topo/search_exact.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace tutti::topo {

namespace {

constexpr int kSmallGpus = 5;
constexpr size_t kMostOrders = 400;

struct Pattern1 {
  Order order;
  std::vector<Load> loads;  // what it takes, by place, each once
  int64_t total = 0;
};

class Exact {
 public:
  Exact(const Problem& problem, const Mode& mode, const Cuts& cuts, const Goal& goal, int atLeast, int64_t& steps)
      : problem_(problem), mode_(mode), cuts_(cuts), target_(goal.channels), bestCount_(atLeast), steps_(steps), room_(problem.capacity()) {
    for (int64_t& room : room_) room /= goal.speedMBps;
  }

  std::vector<Order> run(bool& complete) {
    complete = false;
    std::vector<int16_t> gpus(static_cast<size_t>(problem_.gpus()));
    std::iota(gpus.begin(), gpus.end(), int16_t{0});
    const bool turns = mode_.pattern == Pattern::Ring && !problem_.inter();  // a ring has no first GPU
    do {
      if (turns && gpus[0] != 0) break;
      listEnds(gpus);
      if (byLoads_.size() > kMostOrders) return {};
    } while (std::next_permutation(gpus.begin(), gpus.end()));
    for (auto& [key, found] : byLoads_) all_.push_back(std::move(found));
    std::stable_sort(all_.begin(), all_.end(), [](const Pattern1& a, const Pattern1& b) { return a.total < b.total; });
    count_.assign(all_.size(), 0);
    descend(0, 0);
    complete = steps_ >= 0;
    return std::move(best_);
  }

 private:
  bool pairs() const { return mode_.pattern == Pattern::Ring && mode_.crossNic == CrossNic::InPairs; }

  void listEnds(const std::vector<int16_t>& gpus) {
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

  // Keeps the order when it fits at all and none before it loads everything alike (and, in pairs, uses the same nets).
  void list(const Order& order) {
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
    Pattern1 made;
    made.order = order;
    for (const auto& [place, weight] : sums) {
      if (weight > room_[static_cast<size_t>(place)]) return;
      key.push_back(place);
      key.push_back(weight);
      made.loads.push_back({place, weight});
      made.total += weight;
    }
    if (pairs()) key.insert(key.end(), {-1, order.netIn, order.netOut});
    byLoads_.emplace(std::move(key), std::move(made));
  }

  // Chooses how often the orders from `index` on are used; `chosen` so far.
  void descend(size_t index, int chosen) {
    if (--steps_ < 0 || bestCount_ >= target_) return;
    if (chosen > bestCount_) note();
    if (index == all_.size() || chosen + cuts_.most(room_, target_ - chosen) <= bestCount_) return;
    const Pattern1& order = all_[index];
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

  void note() {
    std::vector<Order> orders;
    for (size_t i = 0; i < all_.size(); ++i) orders.insert(orders.end(), static_cast<size_t>(count_[i]), all_[i].order);
    if (pairs()) orders = paired(std::move(orders));
    if (static_cast<int>(orders.size()) <= bestCount_) return;
    bestCount_ = static_cast<int>(orders.size());
    best_ = std::move(orders);
  }

  // Each channel followed by one that uses its nets the other way round; what finds no partner is left out, but for a single one.
  static std::vector<Order> paired(std::vector<Order> orders) {
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

  const Problem& problem_;
  Mode mode_;
  const Cuts& cuts_;
  int target_;
  int bestCount_;
  int64_t& steps_;
  std::vector<int64_t> room_;
  std::map<std::vector<int32_t>, Pattern1> byLoads_;
  std::vector<Pattern1> all_;
  std::vector<int> count_;
  std::vector<Order> best_;
};

}  // namespace

bool exactIsSmall(const Problem& problem, const Mode& mode) {
  const int nets = problem.nets();
  return problem.gpus() <= kSmallGpus && nets * (mode.crossNic == CrossNic::Never ? 1 : nets) <= 16;
}

std::vector<Order> packExactly(const Problem& problem, const Mode& mode, const Cuts& cuts, const Goal& goal, int atLeast, int64_t& steps,
                               bool& complete) {
  return Exact(problem, mode, cuts, goal, atLeast, steps).run(complete);
}

}  // namespace tutti::topo
