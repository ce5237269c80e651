#include "topo/search.h"

#include <algorithm>
#include <cmath>

#include "core/format.h"
#include "topo/search_field.h"
#include "topo/search_heads.h"
#include "topo/search_pack.h"
#include "topo/search_speed.h"

namespace tutti::topo {

namespace {

struct Found {
  Mode mode;
  std::vector<Order> orders;
  Speeds speeds;
  int64_t value() const { return static_cast<int64_t>(orders.size()) * std::min(speeds.intraMBps, speeds.interMBps); }
};

// What a request allows: patterns, uses of nets and the farthest paths, in the order of preference among equals.
std::vector<Mode> modesOf(const System& system, const Problem& problem, const SearchRequest& request) {
  std::vector<Pattern> patterns = {request.pattern};
  if (request.pattern != Pattern::Ring && problem.gpus() == 1) patterns = {Pattern::Tree};
  else if (request.pattern == Pattern::BalancedTree && oldestSm(system) >= 90) patterns.push_back(Pattern::Tree);
  std::vector<PathType> intra = problem.typesBetween();
  std::vector<PathType> inter = problem.typesInter();
  if (intra.empty()) intra = {PathType::Loc};
  if (inter.empty()) inter = {PathType::Pix};

  std::vector<Mode> modes;
  for (const Pattern pattern : patterns) {
    std::vector<CrossNic> uses = {CrossNic::Never};
    if (problem.nets() > 1 && pattern != Pattern::Tree) {
      if (request.settings.crossNic == 1) uses = {CrossNic::Always};
      if (request.settings.crossNic == 2 && pattern != Pattern::SplitTree) uses.push_back(CrossNic::InPairs);
    }
    for (const CrossNic use : uses) {
      for (const PathType far : inter) {
        for (const PathType near : intra) modes.push_back({pattern, use, near, far});
      }
    }
  }
  return modes;
}

class Search {
 public:
  Search(Field& field, const SearchRequest& request)
      : field_(field),
        system_(field.system()),
        problem_(field.problem()),
        effort_(effortFor(field.problem(), request.settings.effort)),
        steps_(effort_),
        slowest_(request.settings.slowest),
        atLeast_(request.atLeastGBps) {
    const int sm = oldestSm(system_);
    ceilingIntra_ = toMBps(channelCeilingGBps(sm, false));
    limits_ = {request.minChannels, request.maxChannels, problem_.inter() ? toMBps(channelCeilingGBps(sm, true)) : ceilingIntra_};
    modes_ = modesOf(system_, problem_, request);
    cuts_.resize(modes_.size(), nullptr);
  }

  ChannelSet run() {
    int64_t alone = 0;  // nearer paths are some of the farthest ones
    for (size_t i = 0; i < modes_.size(); ++i) {
      if (isFarthest(i)) alone = std::max(alone, fastestFor(cuts(i), limits_, limits_.minChannels));
    }
    limits_.floorMBps = std::max<int64_t>(1, static_cast<int64_t>(static_cast<float>(alone) * slowest_));
    most_ = toMBps(atLeast_);
    for (size_t i = 0; i < modes_.size(); ++i) sketch(i);
    climb();
    if (!best_.orders.empty()) simplify();
    else if (!(atLeast_ > 0)) slowDown();
    proveBound();
    return result();
  }

 private:
  struct Refuted {
    size_t mode;
    int channels;
    int64_t speedMBps;
    bool operator==(const Refuted&) const = default;
  };
  // The cuts of many GPUs take as long as a third of the steps.
  static int64_t effortFor(const Problem& problem, int64_t effort) { return problem.gpus() > kFewGpus ? effort * 2 / 3 : effort; }
  static int64_t toMBps(float GBps) { return std::lround(GBps * 1000.0F); }

  // Something to start from: the mode's best goal, or the next ones clearly below it.
  void sketch(size_t mode) {
    if (steps_ <= 0) return;
    int64_t below = INT64_MAX;
    int tried = 0;
    for (const Goal& goal : goals(cuts(mode), limits_, wanted())) {
      if (goal.value() > below) continue;
      if (goal.value() <= wanted() || attempt(mode, goal, effort_ / 128) || ++tried == 3) return;
      below = goal.value() * 3 / 4;
    }
  }

  // For every number of channels that the cuts still let be better: the speed that would just do. Longer tries when short ones fail.
  void climb() {
    for (const int64_t share : {effort_ / 96, effort_ / 24, effort_ / 8}) {
      for (size_t i = 0; i < modes_.size(); ++i) {
        if (!isFarthest(i)) continue;
        for (int channels = limits_.minChannels; channels <= limits_.maxChannels && steps_ > 0; ++channels) {
          // The packer drops a channel that has no partner.
          if (modes_[i].crossNic == CrossNic::InPairs && modes_[i].pattern == Pattern::Ring && channels > 1 && channels % 2 == 1) continue;
          while (couldBeat(i, channels) && attempt(i, {nextSpeed(channels), channels}, share)) {}
        }
      }
    }
  }
  // What a set has to exceed: the best one so far, or just what was asked for.
  int64_t wanted() const { return best_.orders.empty() ? most_ - most_ / kSame - 1 : most_; }
  int64_t nextSpeed(int channels) const { return std::max(limits_.floorMBps, wanted() / channels + 1); }
  bool couldBeat(size_t mode, int channels) {
    const int64_t speed = nextSpeed(channels);
    if (speed > limits_.ceilingMBps || speed * channels <= wanted()) return false;
    if (std::find(refuted_.begin(), refuted_.end(), Refuted{mode, channels, speed}) != refuted_.end()) return false;
    if (!fits(mode, channels, speed)) return false;
    field_.addGroups(cuts(mode));
    return fits(mode, channels, speed);
  }
  bool fits(size_t mode, int channels, int64_t speed) { return cuts(mode).mostAt(speed, channels) >= channels; }
  Cuts& cuts(size_t mode) {
    if (cuts_[mode] == nullptr) cuts_[mode] = &field_.cuts(modes_[mode]);
    return *cuts_[mode];
  }
  bool isFarthest(size_t i) const {
    return i + 1 == modes_.size() || modes_[i + 1].pattern != modes_[i].pattern || modes_[i + 1].crossNic != modes_[i].crossNic;
  }

  // As much with fewer channels; then as much over nearer paths and fewer rails.
  void simplify() {
    steps_ = std::max(steps_, effort_ / 8);
    const int64_t enough = most_ - most_ / kSame;
    for (int channels = limits_.minChannels; channels < static_cast<int>(best_.orders.size()); ++channels) {
      const int64_t speed = (enough + channels - 1) / channels;
      for (size_t i = 0; i < modes_.size() && speed <= limits_.ceilingMBps; ++i) {
        if (fits(i, channels, speed) && attempt(i, {speed, channels}, effort_ / 96)) channels = limits_.maxChannels;
      }
    }
    for (size_t i = 0; i < modes_.size(); ++i) {
      const int channels = static_cast<int>(best_.orders.size());
      const int64_t speed = (enough + channels - 1) / channels;
      if (best_.mode == modes_[i] || attempt(i, {speed, channels}, effort_ / 96)) return;
    }
  }

  // Nothing fits at any speed that was tried: ever slower, over the farthest paths.
  void slowDown() {
    for (int64_t speed = limits_.ceilingMBps; speed > 0 && best_.orders.empty(); speed /= 2) {
      steps_ = effort_ / 64;
      attempt(modes_.size() - 1, {speed, limits_.maxChannels}, steps_);
    }
  }

  // Whether the goal was reached.
  bool attempt(size_t mode, const Goal& goal, int64_t share) {
    if (steps_ <= 0) return false;
    // Enough to lay the channels a few times, whatever the share.
    const int64_t gpus = problem_.gpus();
    const int64_t enough = int64_t{3} * goal.channels * (gpus * gpus / 16 + 4 * gpus + problem_.nets() + 16);
    int64_t own = std::min(steps_, std::max(share, enough));
    const int64_t given = own;
    std::vector<Order> orders = Packer(problem_, modes_[mode], cuts(mode), goal.speedMBps, own).pack(goal.channels);
    steps_ -= given - own;
    const bool reached = static_cast<int>(orders.size()) == goal.channels;
    consider(modes_[mode], std::move(orders));
    Exact& exact = field_.exact(modes_[mode]);
    if (reached || !exact.isSmall()) return reached;
    int64_t exactSteps = std::min(steps_, 4 * share);
    const int64_t exactGiven = exactSteps;
    bool complete = false;
    orders = exact.pack(goal, exactSteps, complete);
    steps_ -= exactGiven - exactSteps;
    if (orders.empty() && complete) refuted_.push_back({mode, goal.channels, goal.speedMBps});
    const bool found = !orders.empty();
    consider(modes_[mode], std::move(orders));
    return found;
  }

  void consider(const Mode& mode, std::vector<Order> orders) {
    if (mode.pattern == Pattern::Ring && mode.crossNic == CrossNic::InPairs && orders.size() > 1 && orders.size() % 2 == 1)
      orders.pop_back();
    if (static_cast<int>(orders.size()) < limits_.minChannels) return;
    Found found{mode, std::move(orders), {}};
    if (found.orders.empty()) return;
    found.speeds = fastest(problem_, mode, found.orders, limits_.ceilingMBps, ceilingIntra_);
    if (found.value() < most_ - most_ / kSame) return;
    const bool more = found.value() > wanted();
    const bool fewer = found.orders.size() < best_.orders.size();
    const bool nearer = found.orders.size() == best_.orders.size() && placeOf(mode) < placeOf(best_.mode);
    if (!more && !fewer && !nearer) return;
    best_ = std::move(found);
    most_ = std::max(most_, best_.value());
  }
  size_t placeOf(const Mode& mode) const { return static_cast<size_t>(std::find(modes_.begin(), modes_.end(), mode) - modes_.begin()); }

  // Over everything that the request allows: the farthest paths, whatever the nets. What the exact search has refuted does not count.
  void proveBound() {
    bound_ = best_.value();
    for (size_t i = 0; i < modes_.size(); ++i) {
      if (!isFarthest(i)) continue;
      bool open = false;
      for (int channels = limits_.minChannels; channels <= limits_.maxChannels && !open; ++channels) open = couldBeat(i, channels);
      if (!open) continue;
      const std::vector<Goal> over = goals(cuts(i), limits_, most_);
      if (!over.empty()) bound_ = std::max(bound_, over[0].value());
    }
  }

  ChannelSet result() const {
    ChannelSet set;
    set.pattern = best_.mode.pattern;
    set.crossNic = best_.mode.crossNic;
    set.intraGBps = static_cast<float>(best_.speeds.intraMBps) / 1000.0F;
    set.interGBps = static_cast<float>(best_.speeds.interMBps) / 1000.0F;
    set.boundGBps = static_cast<float>(bound_) / 1000.0F;
    set.sameChannels = true;
    const std::vector<PathType> types = problem_.typesBetween();
    set.typeIntra = types.empty() ? PathType::Loc : types[0];
    for (const Order& order : best_.orders) {
      Channel channel;
      for (const int16_t gpu : order.gpus) channel.gpus.push_back(problem_.gpu(gpu));
      if (order.netIn >= 0) {
        channel.netIn = problem_.net(order.netIn);
        channel.netOut = problem_.net(order.netOut);
        set.latencyInterUs = std::max(set.latencyInterUs, system_.at(channel.netIn).net.latencyUs);
      }
      noteTypes(order, set);
      set.sameChannels = set.sameChannels && order.gpus == best_.orders[0].gpus;
      set.channels.push_back(std::move(channel));
    }
    return set;
  }

  void noteTypes(const Order& order, ChannelSet& set) const {
    const auto intra = [&](int from, int to) { set.typeIntra = std::max(set.typeIntra, problem_.between(from, to).type); };
    for (size_t i = 0; i + 1 < order.gpus.size(); ++i) intra(order.gpus[i], order.gpus[i + 1]);
    if (order.netIn < 0) {
      if (set.pattern == Pattern::Ring && order.gpus.size() > 1) intra(order.gpus.back(), order.gpus.front());
      return;
    }
    const auto inter = [&](const Hop& hop) { set.typeInter = std::max(set.typeInter, hop.type); };
    inter(problem_.in(order.netIn, order.gpus.front()));
    if (set.pattern == Pattern::Ring) return inter(problem_.out(order.gpus.back(), order.netOut));
    if (set.pattern != Pattern::SplitTree) inter(problem_.out(order.gpus.front(), order.netOut));
    if (set.pattern != Pattern::Tree) inter(problem_.out(order.gpus[1], order.netOut));
  }

  static constexpr int kFewGpus = 8;
  static constexpr int64_t kSame = 2000;  // values that differ by less than one part of so many are equal

  Field& field_;
  const System& system_;
  const Problem& problem_;
  int64_t effort_;
  int64_t steps_;
  int64_t ceilingIntra_ = 0;
  Limits limits_;
  std::vector<Mode> modes_;
  std::vector<Cuts*> cuts_;  // by mode, once they are asked for; modes may have the same ones
  std::vector<Refuted> refuted_;
  Found best_;
  float slowest_;
  float atLeast_;
  int64_t most_ = 0;  // the highest value seen
  int64_t bound_ = 0;
};

/// GPUs and nets that cannot reach each other, or hardly.
std::string whyNone(const System& system, const Paths& paths) {
  constexpr float kLeastGBps = 0.001F;  // speeds are whole MB/s
  std::vector<NodeId> ends = system.all(NodeKind::Gpu);
  if (system.inter) ends.insert(ends.end(), system.all(NodeKind::Net).begin(), system.all(NodeKind::Net).end());
  for (const NodeId from : ends) {
    for (const NodeId to : ends) {
      const bool areNets = system.at(from).kind == NodeKind::Net && system.at(to).kind == NodeKind::Net;
      const Path& path = paths.get(from, to);
      if (from == to || areNets || (path.type < PathType::Net && path.GBps >= kLeastGBps)) continue;
      if (path.type >= PathType::Net) return format("there is no path from {} to {}", nodeName(system, from), nodeName(system, to));
      return format("the path from {} to {} has {:g} GB/s, and a channel needs {:g} at least", nodeName(system, from), nodeName(system, to),
                    path.GBps, kLeastGBps);
    }
  }
  return format("not one channel fits onto their links at {:g} GB/s", kLeastGBps);
}

Status checkRequest(const System& system, const SearchRequest& request) {
  if (system.count(NodeKind::Gpu) == 0) return error(Code::InvalidArgument, "no channels to search: the system has no GPU");
  if (request.minChannels < 1 || request.maxChannels < request.minChannels) {
    return error(Code::InvalidArgument, "{} to {} channels asked for; at least 1, and the maximum not below the minimum",
                 request.minChannels, request.maxChannels);
  }
  if (system.inter && system.count(NodeKind::Net) == 0) {
    return error(Code::SystemError, "the communicator leaves the {} GPUs of this system, but there is no network",
                 system.count(NodeKind::Gpu));
  }
  return {};
}

}  // namespace

Result<ChannelSet> searchChannels(Field& field, const SearchRequest& request) {
  const System& system = field.system();
  if (Status status = checkRequest(system, request); !status.ok()) return tl::unexpected(std::move(status));
  if (system.inter && request.collnet && field.problem().nets() == 0) {
    ChannelSet empty;
    empty.pattern = request.pattern;
    return empty;
  }
  ChannelSet set = Search(field, request).run();
  if (set.channels.empty() && !request.collnet && !(request.atLeastGBps > 0)) {
    return fail(Code::SystemError, "no {} joins the {} GPUs: {}", patternName(request.pattern), system.count(NodeKind::Gpu),
                whyNone(system, field.paths()));
  }
  return set;
}

Result<ChannelSet> searchChannels(const System& system, const Paths& paths, const SearchRequest& request) {
  if (Status status = checkRequest(system, request); !status.ok()) return tl::unexpected(std::move(status));
  if (request.pattern == Pattern::Nvls || request.pattern == Pattern::CollnetDirect) return searchHeads(system, paths, request);
  Field field(system, paths, isTree(request.pattern), request.collnet);
  return searchChannels(field, request);
}

}  // namespace tutti::topo
