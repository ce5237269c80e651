#include "topo/feasible.h"

#include <algorithm>

#include "core/format.h"
#include "topo/charges.h"

namespace tutti::topo {

namespace {

constexpr float kToleranceGBps = 0.001F;  // speeds are whole MB/s; the reference rounds loads to these

class Checker {
 public:
  Checker(const System& system, const Paths& paths, const SearchRequest& request, const ChannelSet& set)
      : system_(system),
        paths_(paths),
        request_(request),
        set_(set),
        load_(system.links.size(), 0),
        twoWay_(load_),
        net_(system.nodes.size(), 0) {}

  Feasibility run() {
    checkCounts();
    for (int c = 0; c < set_.count(); ++c) {
      channel_ = c;
      if (namesGpus()) chargeChannel();
    }
    checkSame();
    const size_t before = found_.violations.size();
    checkLoads();
    found_.overloads = found_.violations.size() - before;
    return std::move(found_);
  }

 private:
  template <class... Args>
  void violate(fmt::format_string<Args...> text, Args&&... args) {
    found_.violations.push_back(formatArgs(text, fmt::make_format_args(args...)));
  }
  const Channel& channel() const { return set_.channels[static_cast<size_t>(channel_)]; }

  void checkCounts() {
    if (set_.count() > request_.maxChannels) violate("{} channels; at most {} are allowed", set_.count(), request_.maxChannels);
    if (set_.count() > 0 && set_.count() < request_.minChannels)
      violate("{} channels; at least {} are asked for", set_.count(), request_.minChannels);
    if (set_.count() > 0 && (!(set_.intraGBps > 0) || !(set_.interGBps > 0)))
      violate("speeds {} and {} GB/s; both must be above 0", set_.intraGBps, set_.interGBps);
  }

  bool namesGpus() {
    const auto& gpus = channel().gpus;
    const bool nvls = set_.pattern == Pattern::Nvls;
    const size_t wanted = nvls ? 1 : system_.all(NodeKind::Gpu).size();
    bool good = gpus.size() == wanted;
    if (!good) violate("channel {} names {} GPUs; {} are wanted", channel_, gpus.size(), wanted);
    std::vector<bool> seen(system_.nodes.size(), false);
    for (const NodeId gpu : gpus) {
      if (gpu.value < 0 || static_cast<size_t>(gpu.value) >= system_.nodes.size() || system_.at(gpu).kind != NodeKind::Gpu) {
        violate("channel {} names node {}, which is no GPU", channel_, gpu.value);
        good = false;
        continue;
      }
      if (seen[static_cast<size_t>(gpu.value)]) {
        violate("channel {} names {} twice", channel_, nodeName(system_, gpu));
        good = false;
      }
      seen[static_cast<size_t>(gpu.value)] = true;
    }
    const auto isNet = [&](NodeId id) {
      return id.value >= 0 && static_cast<size_t>(id.value) < system_.nodes.size() && system_.at(id).kind == NodeKind::Net;
    };
    if (system_.inter && (!isNet(channel().netIn) || !isNet(channel().netOut))) {
      violate("channel {} lacks its nets", channel_);
      good = false;
    }
    if (good && (nvls || set_.pattern == Pattern::CollnetDirect)) {
      for (int other = 0; other < channel_; ++other) {
        const auto& theirs = set_.channels[static_cast<size_t>(other)].gpus;
        if (!theirs.empty() && theirs[0] == gpus[0])
          violate("channels {} and {} have the same head {}", other, channel_, nodeName(system_, gpus[0]));
      }
    }
    return good;
  }

  void chargeChannel() {
    const auto& gpus = channel().gpus;
    if (set_.pattern == Pattern::Nvls) {
      chargeNvls(gpus[0]);
    } else if (set_.pattern == Pattern::CollnetDirect) {
      const float share = 1.0F / static_cast<float>(std::max<size_t>(1, gpus.size() - 1));
      for (size_t i = 1; i < gpus.size(); ++i) {
        chargeHop(gpus[0], gpus[i], share, false);
        chargeHop(gpus[i], gpus[0], share, false);
      }
    } else {
      for (size_t i = 0; i + 1 < gpus.size(); ++i) chargeHop(gpus[i], gpus[i + 1], 1, isTree(set_.pattern));
      if (set_.pattern == Pattern::Ring && !system_.inter && gpus.size() > 1) chargeHop(gpus.back(), gpus.front(), 1, false);
    }
    if (system_.inter) chargeNets();
  }

  void chargeNvls(NodeId head) {
    if (system_.count(NodeKind::NvSwitch) == 0) return violate("channel {} needs an NVSwitch; there is none", channel_);
    const NodeId nvs = system_.all(NodeKind::NvSwitch)[0];
    for (const NodeId gpu : system_.all(NodeKind::Gpu)) {
      const float share = gpu == head ? 2.0F : 1.0F;
      chargeHop(nvs, gpu, share, false);
      chargeHop(gpu, nvs, share, false);
    }
  }

  void chargeNets() {
    const NodeId in = channel().netIn;
    const NodeId out = channel().netOut;
    if (request_.collnet && (!system_.at(in).net.coll)) violate("channel {}: {} does not reduce", channel_, nodeName(system_, in));
    if (!rulesAllow(in, out))
      violate("channel {}: in by {} and out by {} is not allowed", channel_, nodeName(system_, in), nodeName(system_, out));
    for (const NodeId net : system_.all(NodeKind::Net)) {
      if (sameRail(system_, net, in)) net_[static_cast<size_t>(net.value)] += set_.interGBps;
    }
    const auto& gpus = channel().gpus;
    const bool both = isTree(set_.pattern);
    chargeHop(in, gpus.front(), 1, both);
    switch (set_.pattern) {
      case Pattern::Ring: return chargeHop(gpus.back(), out, 1, false);
      case Pattern::SplitTree: return chargeHop(gpus[gpus.size() > 1 ? 1 : 0], out, 1, both);
      case Pattern::BalancedTree:
        if (gpus.size() == 1) return chargeHop(gpus[0], out, 1, both);
        chargeHop(gpus[0], out, 0.5F, both);
        return chargeHop(gpus[1], out, 0.5F, both);
      default: return chargeHop(gpus.front(), out, 1, both);
    }
  }

  bool rulesAllow(NodeId in, NodeId out) const {
    if (set_.pattern == Pattern::Tree && in != out) return false;
    if (set_.crossNic == CrossNic::Never) return sameRail(system_, in, out);
    if (set_.crossNic != CrossNic::InPairs || set_.pattern != Pattern::Ring || channel_ % 2 == 0) return true;
    const Channel& even = set_.channels[static_cast<size_t>(channel_ - 1)];
    return in == even.netOut && out == even.netIn;
  }

  void chargeHop(NodeId from, NodeId to, float share, bool bothTypes) {
    if (from == to) return;
    const bool withNet = system_.at(from).kind == NodeKind::Net || system_.at(to).kind == NodeKind::Net;
    const PathType limit = withNet ? set_.typeInter : set_.typeIntra;
    const PathType type = paths_.get(from, to).type;
    const PathType back = bothTypes ? paths_.get(to, from).type : PathType::Loc;
    if (type >= PathType::Dis) return violate("channel {}: no path {} → {}", channel_, nodeName(system_, from), nodeName(system_, to));
    if (std::max(type, back) > limit) {
      violate("channel {}: {} → {} is {}; at most {} is stated", channel_, nodeName(system_, from), nodeName(system_, to),
              pathTypeName(std::max(type, back)), pathTypeName(limit));
    }
    const float GBps = share * (withNet ? set_.interGBps : set_.intraGBps);
    addLoad(from, to, GBps, true);
    addLoad(to, from, GBps, false);
  }

  void addLoad(NodeId from, NodeId to, float GBps, bool listed) {
    charges_.clear();
    appendCharges(system_, paths_, from, to, charges_);
    for (const Charge& charge : charges_) {
      const double load = static_cast<double>(GBps) * charge.weight / kWholeWeight;
      if (listed) load_[static_cast<size_t>(charge.link.value)] += load;
      twoWay_[static_cast<size_t>(charge.link.value)] += load;
    }
  }

  void checkSame() {
    if (!set_.sameChannels) return;
    for (const Channel& one : set_.channels) {
      if (one.gpus != set_.channels[0].gpus) return violate("sameChannels is set, but the orders of GPUs differ");
    }
  }

  void checkLoads() {
    found_.loadGBps.resize(load_.size());
    for (size_t i = 0; i < load_.size(); ++i) {
      const Link& link = system_.links[i];
      found_.loadGBps[i] = static_cast<float>(load_[i]);
      if (found_.loadGBps[i] > link.GBps + kToleranceGBps) {
        violate("link {} → {} ({}) carries {} GB/s; it has {}", nodeName(system_, link.from), nodeName(system_, link.to),
                linkTypeName(link.type), found_.loadGBps[i], link.GBps);
      }
      const float twoWay = static_cast<float>(twoWay_[i]) / std::max(link.GBps, 1e-6F);
      if (twoWay > found_.twoWayLoad) {
        found_.twoWayLoad = twoWay;
        found_.twoWayLink = LinkId(static_cast<int32_t>(i));
      }
    }
    for (const NodeId net : system_.all(NodeKind::Net)) {
      const float load = static_cast<float>(net_[static_cast<size_t>(net.value)]);
      if (load > system_.at(net).net.GBps + kToleranceGBps)
        violate("{} brings in {} GB/s; it has {}", nodeName(system_, net), load, system_.at(net).net.GBps);
    }
  }

  const System& system_;
  const Paths& paths_;
  const SearchRequest& request_;
  const ChannelSet& set_;
  std::vector<double> load_;
  std::vector<double> twoWay_;
  std::vector<double> net_;
  std::vector<Charge> charges_;
  int channel_ = 0;
  Feasibility found_;
};

}  // namespace

Feasibility checkChannels(const System& system, const Paths& paths, const SearchRequest& request, const ChannelSet& set) {
  return Checker(system, paths, request, set).run();
}

}  // namespace tutti::topo
