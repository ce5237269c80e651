#include "topo/search_heads.h"

#include <algorithm>
#include <cmath>

#include "topo/charges.h"

namespace tutti::topo {

namespace {

struct Head {
  NodeId gpu;
  NodeId net = kNoNode;
  PathType type = PathType::Pix;
};

PathType farther(const Paths& paths, NodeId a, NodeId b) { return std::max(paths.get(a, b).type, paths.get(b, a).type); }

class HeadSearch {
 public:
  HeadSearch(const System& system, const Paths& paths, const SearchRequest& request)
      : system_(system), paths_(paths), request_(request), nvls_(request.pattern == Pattern::Nvls) {}

  ChannelSet run() {
    ChannelSet best;
    best.pattern = request_.pattern;
    if (!possible()) return best;
    const std::vector<Head> heads = system_.inter ? matched() : everyGpu();
    // Inside one host all GPUs pull evenly, so all are heads.
    const size_t fewest = system_.inter ? static_cast<size_t>(request_.minChannels) : heads.size();
    for (size_t count = heads.size(); count >= fewest && count > 0; --count) {
      ChannelSet set = withHeads({heads.begin(), heads.begin() + static_cast<std::ptrdiff_t>(count)});
      const float gain = set.GBpsInter * static_cast<float>(set.count());
      if (gain > best.GBpsInter * static_cast<float>(best.count())) best = std::move(set);
    }
    best.boundGBps = bound(heads.size());
    return best;
  }

 private:
  bool possible() const {
    if (nvls_) return system_.count(NodeKind::NvSwitch) > 0 && oldestSm(system_) >= 90;
    return system_.inter;
  }
  size_t mostHeads() const {
    const int most = std::min(request_.maxChannels, nvls_ ? kMostNvlsHeads : kMostDirectHeads);
    return static_cast<size_t>(std::min(most, system_.count(NodeKind::Gpu)));
  }

  std::vector<Head> everyGpu() const {
    std::vector<Head> heads;
    for (const NodeId gpu : system_.all(NodeKind::Gpu)) {
      if (heads.size() < mostHeads()) heads.push_back({gpu});
    }
    return heads;
  }

  // Each net with a GPU of its own, nearest pairs first.
  std::vector<Head> matched() const {
    std::vector<Head> pairs;
    for (const NodeId net : system_.all(NodeKind::Net)) {
      if (request_.collnet && !system_.at(net).net.coll) continue;
      for (const NodeId gpu : system_.all(NodeKind::Gpu)) {
        const PathType type = farther(paths_, gpu, net);
        if (type < PathType::Net) pairs.push_back({gpu, net, type});
      }
    }
    const auto local = [&](const Head& head) { return system_.at(head.net).net.localGpu == head.gpu; };
    const auto speed = [&](const Head& head) { return std::min(paths_.get(head.gpu, head.net).GBps, paths_.get(head.net, head.gpu).GBps); };
    std::stable_sort(pairs.begin(), pairs.end(), [&](const Head& a, const Head& b) {
      if (local(a) != local(b)) return local(a);
      return a.type != b.type ? a.type < b.type : speed(a) > speed(b);
    });
    std::vector<Head> heads;
    for (const Head& pair : pairs) {
      const bool taken =
          std::any_of(heads.begin(), heads.end(), [&](const Head& other) { return other.gpu == pair.gpu || other.net == pair.net; });
      if (!taken && heads.size() < mostHeads()) heads.push_back(pair);
    }
    return heads;
  }

  void add(std::vector<double>& sum, NodeId from, NodeId to, double share) const {
    std::vector<Charge> charges;
    appendCharges(system_, paths_, from, to, charges);
    for (const Charge& charge : charges) sum[static_cast<size_t>(charge.link.value)] += share * charge.weight / kWholeWeight;
  }

  PathType addInside(std::vector<double>& sum, const Head& head) const {
    PathType farthest = PathType::Loc;
    const NodeId middle = nvls_ ? system_.all(NodeKind::NvSwitch)[0] : head.gpu;
    const double each = nvls_ ? 1.0 : 1.0 / std::max(1, system_.count(NodeKind::Gpu) - 1);
    for (const NodeId gpu : system_.all(NodeKind::Gpu)) {
      if (gpu == middle) continue;
      const double share = nvls_ && gpu == head.gpu ? 2.0 : each;
      add(sum, middle, gpu, share);
      add(sum, gpu, middle, share);
      farthest = std::max(farthest, farther(paths_, middle, gpu));
    }
    return farthest;
  }

  // The highest speed of `moving` when `fixed` already runs at `fixedSpeed`, in GB/s and whole MB/s.
  double fastest(const std::vector<double>& moving, const std::vector<double>& fixed, double fixedSpeed, double ceiling) const {
    double speed = ceiling;
    for (size_t i = 0; i < moving.size(); ++i) {
      if (moving[i] > 0) speed = std::min(speed, (system_.links[i].GBps - fixed[i] * fixedSpeed) / moving[i]);
    }
    return std::max(0.0, std::floor(speed * 1000 + 1e-6) / 1000);
  }

  // What the rails of the heads' nets give each of them.
  double railShare(const std::vector<Head>& heads) const {
    double least = channelCeilingGBps(oldestSm(system_), true);
    for (const Head& one : heads) {
      const auto users =
          std::count_if(heads.begin(), heads.end(), [&](const Head& other) { return sameRail(system_, one.net, other.net); });
      least = std::min(least, static_cast<double>(system_.at(one.net).net.GBps) / static_cast<double>(users));
    }
    return least;
  }

  ChannelSet withHeads(const std::vector<Head>& heads) const {
    ChannelSet set;
    set.pattern = request_.pattern;
    std::vector<double> inside(system_.links.size(), 0);
    std::vector<double> outside = inside;
    for (const Head& head : heads) {
      set.typeIntra = std::max(set.typeIntra, addInside(inside, head));
      Channel channel;
      channel.gpus = {head.gpu};
      for (const NodeId gpu : system_.all(NodeKind::Gpu)) {
        if (!nvls_ && gpu != head.gpu) channel.gpus.push_back(gpu);
      }
      if (system_.inter) {
        channel.netIn = channel.netOut = head.net;
        add(outside, head.net, head.gpu, 1);
        add(outside, head.gpu, head.net, 1);
        set.typeInter = std::max(set.typeInter, head.type);
        set.latencyInterUs = std::max(set.latencyInterUs, system_.at(head.net).net.latencyUs);
      }
      set.channels.push_back(std::move(channel));
    }
    const double ceiling = channelCeilingGBps(oldestSm(system_), false);
    std::vector<double> both = inside;
    for (size_t i = 0; i < both.size(); ++i) both[i] += outside[i];
    const double rails = system_.inter ? railShare(heads) : ceiling;
    const double equal = fastest(both, inside, 0, std::min(ceiling, rails));
    double intra = equal;
    double inter = equal;
    if (system_.inter) {
      intra = std::max(equal, fastest(inside, outside, equal, std::min(2 * equal, ceiling)));
      inter = std::max(equal, fastest(outside, inside, intra, std::min(2 * intra, rails)));
    }
    set.GBpsIntra = static_cast<float>(intra);
    set.GBpsInter = static_cast<float>(inter);
    return set;
  }

  // One head a GPU and a net; together no more than the rails bring in, nor than the slowest GPU takes from the switch or the heads.
  float bound(size_t heads) const {
    const double ceiling = channelCeilingGBps(oldestSm(system_), system_.inter);
    double most = ceiling * static_cast<double>(heads);
    if (system_.inter) {
      double nets = 0;
      for (const NodeId net : system_.all(NodeKind::Net)) nets += system_.at(net).net.GBps;
      most = std::min(most, nets);
    }
    if (!nvls_) return static_cast<float>(most);
    for (const NodeId gpu : system_.all(NodeKind::Gpu))
      most = std::min(most, static_cast<double>(paths_.get(system_.all(NodeKind::NvSwitch)[0], gpu).GBps));
    return static_cast<float>(most);
  }

  const System& system_;
  const Paths& paths_;
  const SearchRequest& request_;
  bool nvls_;
};

}  // namespace

Result<ChannelSet> searchHeads(const System& system, const Paths& paths, const SearchRequest& request) {
  return HeadSearch(system, paths, request).run();
}

}  // namespace tutti::topo
