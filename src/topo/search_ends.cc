// Where channels come in from the nets and go out to them: the part of the Packer that prices and orders these ends.
#include <algorithm>

#include "topo/search_pack.h"

namespace tutti::topo {

namespace {

constexpr size_t kStarts = 16;
constexpr size_t kEndsPerStart = 6;

}  // namespace

// What every open way out costs now, whole or half, cheapest first.
void Packer::priceWaysOut(int parts) {
  waysOut_.clear();
  for (int net = 0; net < problem_.nets(); ++net) {
    for (int gpu = 0; gpu < problem_.gpus(); ++gpu) {
      const Hop& hop = problem_.out(gpu, net);
      const int64_t price = hop.type > mode_.inter ? -1 : cost(hop, parts);
      if (price >= 0) waysOut_.push_back({noisy(price, gpu + 100, net), gpu, net});
    }
  }
  spend(problem_.nets() * problem_.gpus());
  std::sort(waysOut_.begin(), waysOut_.end(), [](const WayOut& a, const WayOut& b) {
    if (a.cost != b.cost) return a.cost < b.cost;
    return a.net != b.net ? a.net < b.net : a.gpu < b.gpu;
  });
}

// The few cheapest GPUs and nets to end at, for a ring that begins there.
void Packer::addRingEnds(const Ends& start, std::vector<Ends>& found) {
  size_t taken = 0;
  for (const WayOut& way : waysOut_) {
    if (way.gpu == start.first && problem_.gpus() > 1) continue;
    if (!problem_.mayLeaveBy(mode_, start.netIn, way.net)) continue;
    Ends& made = found.emplace_back(start);
    made.last = way.gpu;
    made.netOut = way.net;
    made.cost += way.cost;
    if (++taken == kEndsPerStart) return;
  }
}

// Of a tree the first GPU serves the net, or the second one, or both by half.
void Packer::addTreeEnds(const Ends& start, std::vector<Ends>& found) {
  const bool balanced = mode_.pattern == Pattern::BalancedTree;
  const bool alone = mode_.pattern == Pattern::Tree;
  size_t taken = 0;
  for (const WayOut& way : waysOut_) {
    if (alone ? way.gpu != start.first : way.gpu == start.first) continue;
    if (!problem_.mayLeaveBy(mode_, start.netIn, way.net)) continue;
    int64_t price = way.cost;
    if (!alone) {
      const Hop& on = problem_.between(start.first, way.gpu);
      const Hop& own = problem_.out(start.first, way.net);
      const int64_t step = on.type > mode_.intra ? -1 : cost(on, 2);
      const int64_t half = !balanced ? 0 : own.type > mode_.inter ? -1 : cost(own, 1);
      if (step < 0 || half < 0) continue;
      price += step + half;
    }
    Ends& made = found.emplace_back(start);
    made.second = alone ? -1 : way.gpu;
    made.netOut = way.net;
    made.cost += price;
    if (++taken == 2 * kEndsPerStart) return;
  }
}

bool Packer::isCostlier(const Ends& a, const Ends& b) {
  if (a.cost != b.cost) return a.cost > b.cost;
  if (a.netIn != b.netIn) return a.netIn > b.netIn;
  if (a.first != b.first) return a.first > b.first;
  if (a.netOut != b.netOut) return a.netOut > b.netOut;
  return a.last != b.last ? a.last > b.last : a.second > b.second;
}

// The `most` cheapest, in any order.
void Packer::keepCheapest(std::vector<Ends>& ends, size_t most) {
  spend(static_cast<int>(ends.size()));
  if (ends.size() <= most) return;
  std::nth_element(ends.begin(), ends.begin() + static_cast<std::ptrdiff_t>(most), ends.end(),
                   [](const Ends& a, const Ends& b) { return isCostlier(b, a); });
  ends.resize(most);
}

// Where the next channel could come in and go out.
void Packer::endsToTry() {
  ends_.clear();
  const int gpus = problem_.gpus();
  if (!problem_.inter()) {
    const bool ring = mode_.pattern == Pattern::Ring;
    const int start = static_cast<int>(chosen_.size()) + static_cast<int>(seed_ & 0xffff);
    for (int i = 0; i < (ring ? 1 : gpus); ++i) ends_.push_back({.first = ring ? 0 : (start + i) % gpus});
    return;
  }
  starts_.clear();
  for (int netIn = 0; netIn < problem_.nets(); ++netIn) {
    for (int first = 0; first < gpus; ++first) {
      const Hop& in = problem_.in(netIn, first);
      const int64_t price = in.type > mode_.inter ? -1 : cost(in, 2);
      if (price >= 0) starts_.push_back({.first = first, .netIn = netIn, .cost = noisy(price, first, netIn + 300)});
    }
  }
  keepCheapest(starts_, kStarts);
  priceWaysOut(mode_.pattern == Pattern::BalancedTree ? 1 : 2);
  for (const Ends& start : starts_) {
    if (mode_.pattern == Pattern::Ring) addRingEnds(start, ends_);
    else addTreeEnds(start, ends_);
  }
  keepCheapest(ends_, kEndsTried);
}

}  // namespace tutti::topo
