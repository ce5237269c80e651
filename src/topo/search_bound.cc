#include "topo/search_bound.h"

#include <algorithm>
#include <utility>

namespace tutti::topo {

constexpr int64_t kMostLooks = 16'000'000;  // at hops, for all groups of one mode together

// Links with the least weight that any hop of the search puts on them; 0: not in the set.
struct Cuts::Set {
  explicit Set(size_t all) : weight(all, 0) {}
  void add(int32_t place, int32_t own) {
    int32_t& least = weight[static_cast<size_t>(place)];
    if (least == 0) places.push_back(place);
    least = least == 0 ? own : std::min(least, own);
  }
  void clear() {
    for (const int32_t place : places) weight[static_cast<size_t>(place)] = 0;
    places.clear();
  }
  std::vector<int32_t> weight;
  std::vector<int32_t> places;  // where it is not 0
};

Cuts::Cuts(const Problem& problem, const Mode& mode) : problem_(problem), mode_(mode), ring_(mode.pattern == Pattern::Ring) {
  addSingles();
  addSums();
  addForced(true);
  addForced(false);
  if (problem_.inter()) addNets();
  refreshPlain();
}

bool Cut::lets(std::span<const int64_t> room, int64_t channels) const {
  const int64_t parts = halves ? 2 : 1;
  const int64_t wanted = parts * perChannel * channels;
  int64_t hops = 0;
  const auto add = [&](size_t first, size_t end, int64_t most) {
    int64_t own = 0;
    for (size_t i = first; i < end && own < most; ++i)
      own += std::max<int64_t>(0, parts * room[static_cast<size_t>(links[i].place)] / links[i].weight);
    hops += std::min(own, most);
  };
  size_t first = 0;
  for (const int32_t end : ends) {
    add(first, static_cast<size_t>(end), parts * channels);
    first = static_cast<size_t>(end);
  }
  if (ends.empty()) add(0, links.size(), wanted);
  return hops >= wanted;
}

bool Cuts::let(std::span<const int64_t> room, int channels, size_t& first) const {
  if (first < cuts_.size() && !cuts_[first].lets(room, channels)) return false;
  for (size_t i = 0; i < cuts_.size(); ++i) {
    if (i == first || cuts_[i].lets(room, channels)) continue;
    first = i;
    return false;
  }
  return true;
}

// Empties the set.
Cut Cuts::cutOf(Set& set, int perChannel, bool halves) {
  Cut cut;
  cut.perChannel = perChannel;
  cut.halves = halves;
  std::sort(set.places.begin(), set.places.end());
  cut.links.reserve(set.places.size());
  for (const int32_t place : set.places) cut.links.push_back({place, set.weight[static_cast<size_t>(place)]});
  set.clear();
  return cut;
}

int32_t Cuts::lastPlace(const Hop& hop, NodeId end) const {
  for (const Load& load : problem_.loads(hop)) {
    if (load.place < problem_.links() && problem_.endOf(load.place) == end) return load.place;
  }
  return -1;
}

void Cuts::note(Set& set, const Hop& hop, int32_t place) const {
  for (const Load& load : problem_.loads(hop)) {
    if (load.place == place) set.add(place, load.weight);
  }
}

// Every channel enters every GPU once, and a ring leaves it once.
void Cuts::addSingles() {
  const int gpus = problem_.gpus();
  if (gpus == 1 && !problem_.inter()) return;
  Set into(problem_.capacity().size());
  Set outOf(problem_.capacity().size());
  for (int gpu = 0; gpu < gpus; ++gpu) {
    into.clear();
    outOf.clear();
    for (int other = 0; other < gpus; ++other) {
      const Hop& to = problem_.between(other, gpu);
      const Hop& from = problem_.between(gpu, other);
      if (other != gpu && allowed(to, mode_.intra)) note(into, to, lastPlace(to, problem_.gpu(gpu)));
      if (other != gpu && allowed(from, mode_.intra)) note(outOf, from, problem_.loads(from)[0].place);
    }
    for (int net = 0; net < problem_.nets(); ++net) {
      const Hop& to = problem_.in(net, gpu);
      const Hop& from = problem_.out(gpu, net);
      if (allowed(to, mode_.inter)) note(into, to, lastPlace(to, problem_.gpu(gpu)));
      if (allowed(from, mode_.inter)) note(outOf, from, problem_.loads(from)[0].place);
    }
    if (ring_ || problem_.inter()) keep(into, 1, false);
    if (ring_) keep(outOf, 1, false);
  }
}

// A chain has one hop fewer than GPUs, into different ones and out of different ones.
void Cuts::addSums() {
  const int gpus = problem_.gpus();
  if (ring_ || gpus < 2) return;
  Cut into;
  Cut outOf;
  Set intoGpu(problem_.capacity().size());
  Set outOfGpu(problem_.capacity().size());
  for (int gpu = 0; gpu < gpus; ++gpu) {
    for (int other = 0; other < gpus; ++other) {
      const Hop& in = problem_.between(other, gpu);
      const Hop& out = problem_.between(gpu, other);
      if (other == gpu) continue;
      if (allowed(in, mode_.intra)) note(intoGpu, in, lastPlace(in, problem_.gpu(gpu)));
      if (allowed(out, mode_.intra)) note(outOfGpu, out, problem_.loads(out)[0].place);
    }
    for (const auto& [set, cut] : {std::pair{&intoGpu, &into}, std::pair{&outOfGpu, &outOf}}) {
      const Cut part = cutOf(*set, 1, false);
      cut->links.insert(cut->links.end(), part.links.begin(), part.links.end());
      cut->ends.push_back(static_cast<int32_t>(cut->links.size()));
      cut->perChannel = gpus - 1;
    }
  }
  cuts_.push_back(std::move(into));
  cuts_.push_back(std::move(outOf));
}

// Links that a GPU cannot do without, whichever GPU it sends to (or hears from): every channel charges them for all GPUs but the one at its
// end, and a closed ring for all of them.
void Cuts::addForced(bool sending) {
  const int gpus = problem_.gpus();
  if (gpus < 2) return;
  const size_t places = problem_.capacity().size();
  std::vector<int64_t> sum(places, 0);
  std::vector<int64_t> largest(places, 0);
  std::vector<int32_t> users(places, 0);
  Set least(places);
  for (int gpu = 0; gpu < gpus; ++gpu) {
    int hops = 0;
    for (int other = 0; other < gpus; ++other) {
      const Hop& hop = sending ? problem_.between(gpu, other) : problem_.between(other, gpu);
      if (other == gpu || !allowed(hop, mode_.intra)) continue;
      ++hops;
      for (const Load& load : problem_.loads(hop)) {
        least.add(load.place, load.weight);
        ++users[static_cast<size_t>(load.place)];
      }
    }
    for (const int32_t used : least.places) {
      const auto place = static_cast<size_t>(used);
      if (std::exchange(users[place], 0) != hops) continue;
      sum[place] += least.weight[place];
      largest[place] = std::max<int64_t>(largest[place], least.weight[place]);
    }
    least.clear();
  }
  const bool closed = ring_ && !problem_.inter();
  for (size_t place = 0; place < places; ++place) {
    const int64_t forced = closed ? sum[place] : sum[place] - largest[place];
    if (forced <= kUnit / 2) continue;
    Cut cut;
    cut.links.push_back({static_cast<int32_t>(place), static_cast<int32_t>(forced)});
    cuts_.push_back(std::move(cut));
  }
}

// Every channel comes in by one rail, and from some net into some GPU; and out again.
void Cuts::addNets() {
  Set rails(problem_.capacity().size());
  for (int net = 0; net < problem_.nets(); ++net) {
    for (int gpu = 0; gpu < problem_.gpus(); ++gpu) {
      if (allowed(problem_.in(net, gpu), mode_.inter))
        rails.add(problem_.links() + problem_.rail(net), kUnit);
    }
  }
  keep(rails, 1, false);
  const std::vector<bool> everyGpu(static_cast<size_t>(problem_.gpus()), true);
  Set set(problem_.capacity().size());
  FlowGraph graph(problem_.nodes());
  addFlow(everyGpu, true, graph, set);
  keep(set, 1, false);
  addFlow(everyGpu, false, graph, set);
  keep(set, 1, mode_.pattern == Pattern::BalancedTree);
}

// Single GPUs, and the GPUs that some link leads to, for every link; as sets, each once, never none or all.
std::vector<std::vector<bool>> Cuts::groups() const {
  const int gpus = problem_.gpus();
  std::vector<std::vector<bool>> leads(static_cast<size_t>(problem_.links()), std::vector<bool>(static_cast<size_t>(gpus), false));
  for (int from = 0; from < gpus; ++from) {
    for (int to = 0; to < gpus; ++to) {
      const Hop& hop = problem_.between(from, to);
      if (from == to || !allowed(hop, mode_.intra)) continue;
      for (const Load& load : problem_.loads(hop)) leads[static_cast<size_t>(load.place)][static_cast<size_t>(to)] = true;
    }
  }
  for (int gpu = 0; gpu < gpus && problem_.inter(); ++gpu) {
    leads.emplace_back(static_cast<size_t>(gpus), false);
    leads.back()[static_cast<size_t>(gpu)] = true;
  }
  // What leads into a group leads out of the others: without nets, one of the two is enough.
  for (std::vector<bool>& group : leads) {
    if (!problem_.inter() && group[0]) group.flip();
  }
  std::sort(leads.begin(), leads.end());
  leads.erase(std::unique(leads.begin(), leads.end()), leads.end());
  std::erase_if(leads, [&](const std::vector<bool>& group) {
    const auto size = std::count(group.begin(), group.end(), true);
    return size < (problem_.inter() ? 1 : 2) || size > gpus - 1;
  });
  return leads;
}

// The links of a least cut that all hops into (or out of) the group pass; they join `set`.
void Cuts::addFlow(const std::vector<bool>& inside, bool entering, FlowGraph& graph, Set& set) const {
  Set used(problem_.capacity().size());
  const auto use = [&](const Hop& hop) {
    for (const Load& load : problem_.loads(hop)) {
      // No rail, nor what is charged on the way back.
      if (load.place < problem_.links() && load.weight >= kUnit) used.add(load.place, load.weight);
    }
  };
  std::vector<int32_t> sources;
  std::vector<bool> isSink(static_cast<size_t>(problem_.nodes()), false);
  for (int gpu = 0; gpu < problem_.gpus(); ++gpu) {
    if (inside[static_cast<size_t>(gpu)] == entering) isSink[static_cast<size_t>(problem_.gpu(gpu).value)] = true;
    else sources.push_back(problem_.gpu(gpu).value);
    for (int other = 0; other < problem_.gpus() && inside[static_cast<size_t>(gpu)] != entering; ++other) {
      const Hop& hop = problem_.between(gpu, other);
      if (inside[static_cast<size_t>(other)] == entering && allowed(hop, mode_.intra)) use(hop);
    }
  }
  for (int net = 0; net < problem_.nets(); ++net) {
    if (entering) sources.push_back(problem_.net(net).value);
    else isSink[static_cast<size_t>(problem_.net(net).value)] = true;
    for (int gpu = 0; gpu < problem_.gpus(); ++gpu) {
      if (!inside[static_cast<size_t>(gpu)]) continue;
      const Hop& hop = entering ? problem_.in(net, gpu) : problem_.out(gpu, net);
      if (allowed(hop, mode_.inter)) use(hop);
    }
  }
  graph.clear();
  for (const int32_t place : used.places) {
    const int64_t room = problem_.capacity()[static_cast<size_t>(place)] / used.weight[static_cast<size_t>(place)];
    graph.addLink(problem_.startOf(place).value, problem_.endOf(place).value, room, place);
  }
  for (const int32_t place : graph.leastCut(sources, isSink)) set.add(place, used.weight[static_cast<size_t>(place)]);
}

bool Cuts::areAlike(const Mode& a, const Mode& b) {
  const bool isSamePattern = a.pattern == b.pattern || (a.pattern != Pattern::Ring && b.pattern != Pattern::Ring &&
                                                        a.pattern != Pattern::BalancedTree && b.pattern != Pattern::BalancedTree);
  return isSamePattern && a.intra == b.intra && a.inter == b.inter;
}

bool Cuts::addGroupsOf(const Cuts& other) {
  if (grouped_) return true;
  const bool isSame = other.ring_ == ring_ && other.mode_.intra == mode_.intra && other.mode_.inter == mode_.inter;
  if (!other.grouped_ || !isSame) return false;
  grouped_ = true;
  firstOfGroups_ = cuts_.size();
  cuts_.insert(cuts_.end(), other.cuts_.begin() + static_cast<std::ptrdiff_t>(other.firstOfGroups_), other.cuts_.end());
  refreshPlain();
  return true;
}

// A ring crosses into every group and out of it; a chain without nets crosses one way or the other, one with nets comes into every group.
void Cuts::addGroups() {
  if (grouped_) return;
  grouped_ = true;
  firstOfGroups_ = cuts_.size();
  // Each costs a look at all hops and a flow. Without some the bound is a bound all the same, and what crosses a single GPU's border, or
  // all but one's, is little news.
  std::vector<std::vector<bool>> all = groups();
  const auto most = static_cast<size_t>(std::max<int64_t>(kMostLooks / (int64_t{problem_.gpus()} * problem_.gpus()), 1));
  if (all.size() > most) {
    std::erase_if(all, [&](const std::vector<bool>& group) {
      const auto size = std::count(group.begin(), group.end(), true);
      return size == 1 || size == problem_.gpus() - 1;
    });
    all.resize(std::min(all.size(), most));
  }
  Set set(problem_.capacity().size());
  FlowGraph graph(problem_.nodes());
  for (const std::vector<bool>& group : all) {
    addFlow(group, true, graph, set);
    if (ring_ || problem_.inter()) keep(set, 1, false);
    if (!ring_ && problem_.inter()) continue;
    addFlow(group, false, graph, set);
    keep(set, 1, false);
  }
  refreshPlain();
}

}  // namespace tutti::topo
