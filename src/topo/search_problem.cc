#include "topo/search_problem.h"

#include <algorithm>
#include <cmath>

#include "topo/charges.h"

namespace tutti::topo {

namespace {

int64_t capacityOf(float GBps) { return std::llround(static_cast<double>(GBps) * 1000) * kUnit; }

std::vector<PathType> typesOf(const std::vector<Hop>& hops) {
  std::vector<PathType> types;
  for (const Hop& hop : hops) {
    if (hop.type < PathType::Net) types.push_back(hop.type);
  }
  std::sort(types.begin(), types.end());
  types.erase(std::unique(types.begin(), types.end()), types.end());
  return types;
}

}  // namespace

Problem::Problem(const System& system, const Paths& paths, bool trees, bool collnet)
    : gpus_(system.count(NodeKind::Gpu)),
      nodes_(static_cast<int32_t>(system.nodes.size())),
      gpuNodes_(&system.all(NodeKind::Gpu)),
      placeAt_(system.links.size(), -1) {
  if (system.inter) {
    for (const NodeId net : system.all(NodeKind::Net)) {
      if (!collnet || system.at(net).net.coll) netNodes_.push_back(net);
    }
  }
  nets_ = static_cast<int>(netNodes_.size());
  between_.reserve(cell(gpus_, 0));
  for (int from = 0; from < gpus_; ++from) {
    for (int to = 0; to < gpus_; ++to) between_.push_back(from == to ? Hop{} : makeHop(system, paths, gpu(from), gpu(to), trees));
  }
  for (int number = 0; number < nets_; ++number) {
    for (int to = 0; to < gpus_; ++to) {
      in_.push_back(makeHop(system, paths, net(number), gpu(to), trees));
      out_.push_back(makeHop(system, paths, gpu(to), net(number), trees));
    }
  }
  addRails(system);
}

Hop Problem::makeHop(const System& system, const Paths& paths, NodeId from, NodeId to, bool bothWays) {
  Hop hop;
  hop.type = paths.get(from, to).type;
  if (bothWays) hop.type = std::max(hop.type, paths.get(to, from).type);
  std::vector<Charge> charges;
  if (hop.type < PathType::Net) appendCharges(system, paths, from, to, charges);
  if (charges.empty()) {  // no way, or one that leads over nothing
    hop.type = PathType::Dis;
    return hop;
  }
  hop.first = static_cast<int32_t>(loads_.size());
  hop.count = static_cast<int32_t>(charges.size());
  for (const Charge& charge : charges) loads_.push_back({placeOf(system, charge.link), charge.weight * (kUnit / kWholeWeight)});
  return hop;
}

int32_t Problem::placeOf(const System& system, LinkId link) {
  int32_t& place = placeAt_[static_cast<size_t>(link.value)];
  if (place < 0) {
    place = links();
    ends_.emplace_back(system.at(link).from, system.at(link).to);
    capacity_.push_back(capacityOf(system.at(link).GBps));
  }
  return place;
}

// Every way in gets one more load, on the rail of its net.
void Problem::addRails(const System& system) {
  std::vector<int64_t> rails;
  for (int number = 0; number < nets_; ++number) {
    int found = -1;
    for (int earlier = 0; earlier < number && found < 0; ++earlier) {
      if (sameRail(system, net(number), net(earlier))) found = rail(earlier);
    }
    if (found < 0) {
      found = static_cast<int>(rails.size());
      rails.push_back(INT64_MAX);
    }
    rail_.push_back(found);
    int64_t& room = rails[static_cast<size_t>(found)];
    const int64_t own = capacityOf(system.at(net(number)).net.GBps);
    room = std::min(room, own);
  }
  for (int number = 0; number < nets_; ++number) {
    for (int to = 0; to < gpus_; ++to) {
      Hop& hop = in_[cell(number, to)];
      if (hop.type == PathType::Dis) continue;
      const auto old = loads(hop);
      const std::vector<Load> copy(old.begin(), old.end());
      hop.first = static_cast<int32_t>(loads_.size());
      loads_.insert(loads_.end(), copy.begin(), copy.end());
      loads_.push_back({links() + rail(number), kUnit});
      ++hop.count;
    }
  }
  capacity_.insert(capacity_.end(), rails.begin(), rails.end());
}

std::vector<PathType> Problem::typesBetween() const { return typesOf(between_); }

std::vector<PathType> Problem::typesInter() const {
  std::vector<Hop> all = in_;
  all.insert(all.end(), out_.begin(), out_.end());
  return typesOf(all);
}

}  // namespace tutti::topo
