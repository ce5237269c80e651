// How many channels fit at most, whatever their order: cuts that every channel must cross.
//
// Internal to the search of topo/; values that live for one search; one thread.
// 1. A cut is a set of links (or rails) of which every channel takes at least `perChannel` whole hops' worth. So no more than
//    (sum of what each link holds, in whole hops) / perChannel channels fit: an upper bound, in an empty machine and in a filled one.
// 2. The cuts of single GPUs and of all nets are made at once; those of groups of GPUs when they are asked for, all by max-flow.
#pragma once

#include <span>
#include <vector>

#include "topo/search_problem.h"

namespace tutti::topo {

struct Cut {
  std::vector<Load> links;  ///< Each with the least weight that a hop puts on it.
  int perChannel = 1;
  bool halves = false;  ///< Half hops cross it too.
  /// Where every channel takes at most one hop of a part: links of part i end before ends[i]. Empty: any number of hops.
  std::vector<int32_t> ends;

  /// The most channels, at most `limit`, that `room` lets cross.
  int64_t most(std::span<const int64_t> room, int64_t limit) const;
};

class Cuts {
 public:
  Cuts(const Problem& problem, const Mode& mode);

  /// The most channels that fit into `room` (by place, in 1/kUnit of a channel), at most `limit`.
  int most(std::span<const int64_t> room, int limit) const;
  const std::vector<Cut>& all() const { return cuts_; }
  /// Adds the cuts around groups of GPUs that share a link. Once; later calls do nothing.
  void addGroups();
  /// The same from a mode that has them and differs only in its use of nets, or its kind of tree; false: it has not, or is another.
  bool addGroupsOf(const Cuts& other);

 private:
  struct Set;
  bool allowed(const Hop& hop, PathType limit) const { return hop.type <= limit; }
  int32_t lastPlace(const Hop& hop, NodeId end) const;
  void addSingles();
  void addSums();
  void addForced(bool sending);
  void addNets();
  Cut cutOf(const Set& set, int perChannel, bool halves) const;
  void keep(const Set& set, int perChannel, bool halves) { cuts_.push_back(cutOf(set, perChannel, halves)); }
  void note(Set& set, const Hop& hop, int32_t place) const;
  std::vector<std::vector<bool>> groups() const;
  void addFlow(const std::vector<bool>& inside, bool entering, Set& set) const;

  const Problem& problem_;
  Mode mode_;
  bool ring_;
  bool grouped_ = false;
  size_t firstOfGroups_ = 0;  // among cuts_, once grouped_
  std::vector<Cut> cuts_;
};

}  // namespace tutti::topo
