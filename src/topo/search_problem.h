// A search compiled to small integers: hops between GPU and net numbers, what they charge, and what the links hold.
//
// Internal to the search of topo/; a value that lives for one search; one thread.
// 1. GPU and net numbers are places in System::all of their kind; places of `capacity` are links in use, then rails of nets.
// 2. Capacities are in MB/s × kUnit; a hop at s MB/s takes s × weight of them. At a given speed everything is counted in kUnit-ths of a
//    channel: room = capacity / speed.
// 3. A rail is charged by what comes in, as the reference does.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "topo/search.h"

namespace tutti::topo {

inline constexpr int32_t kUnit = 80;  ///< One whole hop over a plain link; half of it is the smallest part that is charged.

struct Load {
  int32_t place;   ///< In Problem::capacity.
  int32_t weight;  ///< In 1/kUnit of the speed.
};

struct Hop {
  PathType type = PathType::Dis;  ///< Of trees the farther of both directions.
  int32_t first = 0;              ///< In Problem::loads.
  int32_t count = 0;
};

/// What a search may use: found channels are valid for it.
struct Mode {
  Pattern pattern = Pattern::Ring;
  CrossNic crossNic = CrossNic::Never;
  PathType intra = PathType::Sys;
  PathType inter = PathType::Sys;
  bool operator==(const Mode&) const = default;
};

/// A channel in numbers; nets are −1 without `inter`.
struct Order {
  std::vector<int16_t> gpus;
  int16_t netIn = -1;
  int16_t netOut = -1;
};

class Problem {
 public:
  /// For rings, or for trees, whose hops carry data both ways; `collnet`: only nets that reduce.
  Problem(const System& system, const Paths& paths, bool trees, bool collnet);

  int gpus() const { return gpus_; }
  int nets() const { return nets_; }
  bool inter() const { return nets_ > 0; }

  const Hop& between(int from, int to) const { return between_[cell(from, to)]; }
  const Hop& in(int net, int gpu) const { return in_[cell(net, gpu)]; }
  const Hop& out(int gpu, int net) const { return out_[cell(net, gpu)]; }
  std::span<const Load> loads(const Hop& hop) const { return {loads_.data() + hop.first, static_cast<size_t>(hop.count)}; }

  int rail(int net) const { return rail_[static_cast<size_t>(net)]; }
  bool mayLeaveBy(const Mode& mode, int netIn, int netOut) const {
    if (mode.pattern == Pattern::Tree || mode.pattern == Pattern::Nvls || mode.pattern == Pattern::CollnetDirect) return netIn == netOut;
    return mode.crossNic != CrossNic::Never || rail(netIn) == rail(netOut);
  }

  const std::vector<int64_t>& capacity() const { return capacity_; }
  int32_t links() const { return static_cast<int32_t>(ends_.size()); }  ///< Places below are links, those above rails.
  NodeId startOf(int32_t place) const { return ends_[static_cast<size_t>(place)].first; }
  NodeId endOf(int32_t place) const { return ends_[static_cast<size_t>(place)].second; }
  int32_t nodes() const { return nodes_; }  ///< Of the system.

  NodeId gpu(int number) const { return (*gpuNodes_)[static_cast<size_t>(number)]; }
  NodeId net(int number) const { return netNodes_[static_cast<size_t>(number)]; }

  /// The types that hops have, nearest first.
  std::vector<PathType> typesBetween() const;
  std::vector<PathType> typesInter() const;

 private:
  size_t cell(int row, int gpu) const { return static_cast<size_t>(row) * static_cast<size_t>(gpus_) + static_cast<size_t>(gpu); }
  Hop makeHop(const System& system, const Paths& paths, NodeId from, NodeId to, bool bothWays);
  int32_t placeOf(const System& system, LinkId link);
  void addRails(const System& system);

  int gpus_ = 0;
  int nets_ = 0;
  int32_t nodes_ = 0;
  const std::vector<NodeId>* gpuNodes_ = nullptr;
  std::vector<NodeId> netNodes_;
  std::vector<Hop> between_;
  std::vector<Hop> in_;
  std::vector<Hop> out_;
  std::vector<Load> loads_;
  std::vector<int64_t> capacity_;
  std::vector<std::pair<NodeId, NodeId>> ends_;  // of the link at each place
  std::vector<int32_t> placeAt_;  // link of the system → place, −1
  std::vector<int> rail_;         // net number → rail, counted from 0
};

}  // namespace tutti::topo
