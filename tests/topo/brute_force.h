// The best set of channels by trying all: every order of GPUs with every pair of nets, every multiset of them. Shares only the charging of
// hops and the ceiling of a channel with the search. And a plain greedy search, to know how hard a machine is.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "topo/charges.h"
#include "topo/search.h"

namespace tutti::topo::test {

class BruteForce {
 public:
  BruteForce(const System& system, const Paths& paths, const SearchRequest& request) : system_(system), paths_(paths), request_(request) {
    ceiling_ = channelCeilingGBps(oldestSm(system), system.inter);
  }

  /// The highest channels × speed, in GB/s; every set has at most request.maxChannels.
  double optimum() {
    double best = 0;
    for (const Pattern pattern : patterns()) {
      list(pattern);
      for (int count = request_.minChannels; count <= request_.maxChannels; ++count) {
        std::vector<double> load(places(), 0);
        best = std::max(best, choose(0, count, count, load));
      }
    }
    return best;
  }

  /// The highest of rings over nets of which channels 2i and 2i + 1 use the same two the other way round, and of single ones over any two.
  double optimumInPairs() {
    std::map<std::pair<int32_t, int32_t>, std::map<std::vector<double>, bool>> byNets;
    std::vector<NodeId> gpus = system_.all(NodeKind::Gpu);
    std::sort(gpus.begin(), gpus.end(), [](NodeId a, NodeId b) { return a.value < b.value; });
    do {
      std::vector<double> inside(places(), 0);
      bool joined = true;
      for (size_t i = 0; i + 1 < gpus.size(); ++i) joined = joined && addHop(inside, gpus[i], gpus[i + 1], 1, Pattern::Ring);
      for (const NodeId in : system_.all(NodeKind::Net)) {
        for (const NodeId out : system_.all(NodeKind::Net)) {
          std::vector<double> load = inside;
          if (joined && addNets(load, gpus, in, out, Pattern::Ring)) byNets[{in.value, out.value}][load] = true;
        }
      }
    } while (std::next_permutation(gpus.begin(), gpus.end(), [](NodeId a, NodeId b) { return a.value < b.value; }));
    double best = 0;
    std::map<std::vector<double>, bool> pairs;
    for (const auto& [nets, kinds] : byNets) {
      for (const auto& [load, yes] : kinds) {
        if (request_.minChannels == 1) best = std::max(best, speedOf(load));
        for (const auto& [back, too] : byNets[{nets.second, nets.first}]) {
          std::vector<double> both = load;
          for (size_t i = 0; i < both.size(); ++i) both[i] += back[i];
          pairs[both] = true;
        }
      }
    }
    keep(pairs);
    for (int count = 1; 2 * count <= request_.maxChannels; ++count) {
      std::vector<double> load(places(), 0);
      best = std::max(best, 2 * choose(0, count, count, load));
    }
    return best;
  }

  /// How many sets optimum() would look at.
  double work() {
    double sum = 0;
    for (const Pattern pattern : patterns()) {
      list(pattern);
      double sets = 1;
      for (int i = 0; i < request_.maxChannels; ++i) sets *= static_cast<double>(kinds_.size() + static_cast<size_t>(i)) / (i + 1);
      sum += sets;
    }
    return sum;
  }

  /// Channel after channel, always on to the next GPU with the most left; never taken back.
  double greedy() {
    double best = 0;
    const Pattern pattern = patterns()[0];
    std::vector<double> load(places(), 0);
    for (int count = 1; count <= request_.maxChannels; ++count) {
      std::vector<double> channel = greedyChannel(pattern, load);
      if (channel.empty()) break;
      load = std::move(channel);
      if (count >= request_.minChannels) best = std::max(best, count * speedOf(load));
    }
    return best;
  }

 private:
  using Loads = std::vector<std::pair<size_t, double>>;

  size_t places() const { return system_.links.size() + system_.nodes.size(); }  // links, then rails by their first net
  size_t railOf(NodeId net) const {
    for (const NodeId other : system_.all(NodeKind::Net)) {
      if (sameRail(system_, net, other)) return system_.links.size() + static_cast<size_t>(other.value);
    }
    return 0;
  }
  double capacity(size_t place) const {
    if (place < system_.links.size()) return system_.links[place].GBps;
    return system_.nodes[place - system_.links.size()].net.GBps;
  }
  double speedOf(const std::vector<double>& load) const {
    double speed = ceiling_;
    for (size_t i = 0; i < load.size(); ++i) {
      if (load[i] > 0) speed = std::min(speed, capacity(i) / load[i]);
    }
    return speed;
  }

  std::vector<Pattern> patterns() const {
    const bool tree = request_.pattern == Pattern::BalancedTree;
    if (tree && system_.count(NodeKind::Gpu) == 1) return {Pattern::Tree};
    if (tree && oldestSm(system_) >= 90) return {Pattern::BalancedTree, Pattern::Tree};
    return {request_.pattern};
  }

  bool reaches(NodeId from, NodeId to, Pattern pattern) const {
    if (pattern != Pattern::Ring && paths_.get(to, from).type >= PathType::Net) return false;
    return paths_.get(from, to).type < PathType::Net;
  }

  bool addHop(std::vector<double>& load, NodeId from, NodeId to, double share, Pattern pattern) const {
    if (!reaches(from, to, pattern)) return false;
    std::vector<Charge> charges;
    appendCharges(system_, paths_, from, to, charges);
    for (const Charge& charge : charges) load[static_cast<size_t>(charge.link.value)] += share * charge.weight / kWholeWeight;
    return true;
  }

  bool addNets(std::vector<double>& load, const std::vector<NodeId>& gpus, NodeId in, NodeId out, Pattern pattern) const {
    if (pattern == Pattern::Tree && in != out) return false;
    if (request_.settings.crossNic == 0 && !sameRail(system_, in, out)) return false;
    load[railOf(in)] += 1;
    if (!addHop(load, in, gpus.front(), 1, pattern)) return false;
    if (pattern == Pattern::Ring) return addHop(load, gpus.back(), out, 1, pattern);
    if (pattern == Pattern::Tree) return addHop(load, gpus.front(), out, 1, pattern);
    return addHop(load, gpus[0], out, 0.5, pattern) && addHop(load, gpus[1], out, 0.5, pattern);
  }

  void keep(const std::map<std::vector<double>, bool>& seen) {
    kinds_.clear();
    for (const auto& [load, yes] : seen) {
      Loads sparse;
      for (size_t i = 0; i < load.size(); ++i) {
        if (load[i] > 0) sparse.emplace_back(i, load[i]);
      }
      kinds_.push_back(std::move(sparse));
    }
  }

  void list(Pattern pattern) {
    std::map<std::vector<double>, bool> seen;
    std::vector<NodeId> gpus = system_.all(NodeKind::Gpu);
    std::vector<size_t> index(gpus.size());
    std::iota(index.begin(), index.end(), size_t{0});
    do {
      std::vector<NodeId> order;
      for (const size_t i : index) order.push_back(gpus[i]);
      std::vector<double> inside(places(), 0);
      bool joined = true;
      for (size_t i = 0; i + 1 < order.size(); ++i) joined = joined && addHop(inside, order[i], order[i + 1], 1, pattern);
      if (!system_.inter && pattern == Pattern::Ring && order.size() > 1)
        joined = joined && addHop(inside, order.back(), order.front(), 1, pattern);
      if (!joined) continue;
      if (!system_.inter) {
        seen[inside] = true;
        continue;
      }
      for (const NodeId in : system_.all(NodeKind::Net)) {
        for (const NodeId out : system_.all(NodeKind::Net)) {
          std::vector<double> load = inside;
          if (addNets(load, order, in, out, pattern)) seen[load] = true;
        }
      }
    } while (std::next_permutation(index.begin(), index.end()));
    keep(seen);
  }

  double choose(size_t first, int left, int count, std::vector<double>& load) const {
    if (left == 0) return count * speedOf(load);
    double best = 0;
    for (size_t i = first; i < kinds_.size(); ++i) {
      for (const auto& [place, share] : kinds_[i]) load[place] += share;
      best = std::max(best, choose(i, left - 1, count, load));
      for (const auto& [place, share] : kinds_[i]) load[place] -= share;
    }
    return best;
  }

  // What every link carries once the next channel is laid; empty when it could not be.
  std::vector<double> greedyChannel(Pattern pattern, const std::vector<double>& before) const {
    const std::vector<NodeId>& gpus = system_.all(NodeKind::Gpu);
    std::vector<double> load = before;
    std::vector<NodeId> order;
    const auto takeBest = [&](const std::vector<NodeId>& from, const std::vector<NodeId>& options) {
      double bestSpeed = -1;
      NodeId best = kNoNode;
      for (const NodeId option : options) {
        if (std::find(order.begin(), order.end(), option) != order.end()) continue;
        std::vector<double> tried = load;
        if (!from.empty() && !addHop(tried, from[0], option, 1, pattern)) continue;
        const double speed = speedOf(tried);
        if (speed <= bestSpeed) continue;
        bestSpeed = speed;
        best = option;
      }
      return best;
    };
    NodeId in = kNoNode;
    if (system_.inter) {
      double bestSpeed = -1;
      for (const NodeId net : system_.all(NodeKind::Net)) {
        std::vector<double> tried = load;
        tried[railOf(net)] += 1;
        if (speedOf(tried) > bestSpeed) {
          bestSpeed = speedOf(tried);
          in = net;
        }
      }
      order.push_back(takeBest({in}, gpus));
      if (order.back() == kNoNode) return {};
    } else {
      order.push_back(gpus[0]);
    }
    while (order.size() < gpus.size()) {
      const NodeId next = takeBest({order.back()}, gpus);
      if (next == kNoNode) return {};
      addHop(load, order.back(), next, 1, pattern);
      order.push_back(next);
    }
    if (system_.inter) return addNets(load, order, in, in, pattern) ? load : std::vector<double>{};
    if (pattern == Pattern::Ring && order.size() > 1 && !addHop(load, order.back(), order.front(), 1, pattern)) return {};
    return load;
  }

  const System& system_;
  const Paths& paths_;
  const SearchRequest& request_;
  double ceiling_ = 0;
  std::vector<Loads> kinds_;
};

}  // namespace tutti::topo::test
