// How many channels fit at most, whatever their order: cuts that every channel must cross.
//
// Internal to the search of topo/; values that live for one search; one thread.
// 1. A cut is a set of links (or rails) of which every channel takes at least `perChannel` whole hops' worth. So no more than
//    (sum of what each link holds, in whole hops) / perChannel channels fit: an upper bound, in an empty machine and in a filled one.
// 2. The cuts of single GPUs and of all nets are made at once; those of groups of GPUs when they are asked for, all by max-flow.
#pragma once

#include <compare>
#include <span>
#include <vector>

#include "topo/search_flow.h"
#include "topo/search_problem.h"

namespace tutti::topo {

struct Cut {
  std::vector<Load> links;  ///< Each with the least weight that a hop puts on it.
  int perChannel = 1;
  bool halves = false;  ///< Half hops cross it too.
  /// Where every channel takes at most one hop of a part: links of part i end before ends[i]. Empty: any number of hops.
  std::vector<int32_t> ends;

  /// Whether `room` lets so many channels cross.
  bool lets(std::span<const int64_t> room, int64_t channels) const;
};

/// A cut as the empty machine shows it: which links they are does not count, only how many hold how much.
struct PlainCut {
  struct Links {
    int64_t capacity = 0;  ///< As in Problem.
    int32_t weight = 0;
    int32_t count = 0;
    auto operator<=>(const Links&) const = default;
  };
  struct Part {
    std::vector<Links> links;
    int32_t count = 0;
    auto operator<=>(const Part&) const = default;
  };
  std::vector<Part> parts;
  int perChannel = 1;
  bool halves = false;
  bool oneOfEach = false;  ///< Of each part every channel takes one hop at most.
  auto operator<=>(const PlainCut&) const = default;

  /// The most channels of that speed, at most `limit`.
  int64_t most(int64_t speedMBps, int64_t limit) const;
};

class Cuts {
 public:
  Cuts(const Problem& problem, const Mode& mode);

  /// Whether so many channels could fit into `room` (by place, in 1/kUnit of a channel). `first` is the cut to ask first; then the one that
  /// said no: it is likely to say so again.
  bool let(std::span<const int64_t> room, int channels, size_t& first) const;
  /// The most channels that fit where none is laid yet, at most `limit`.
  int mostAt(int64_t speedMBps, int limit) const;
  const std::vector<Cut>& all() const { return cuts_; }
  const std::vector<PlainCut>& plain() const { return plain_; }  ///< Those of all(), alike ones once.
  /// Adds the cuts around groups of GPUs that share a link. Once; later calls do nothing.
  void addGroups();
  /// The same from a mode that has them and differs only in its kind of tree; false: it has not, or is another.
  bool addGroupsOf(const Cuts& other);
  /// Whether the cuts of the modes are the same ones.
  static bool areAlike(const Mode& a, const Mode& b);

 private:
  struct Set;
  bool allowed(const Hop& hop, PathType limit) const { return hop.type <= limit; }
  int32_t lastPlace(const Hop& hop, NodeId end) const;
  void addSingles();
  void addSums();
  void addForced(bool sending);
  void addNets();
  static Cut cutOf(Set& set, int perChannel, bool halves);
  void keep(Set& set, int perChannel, bool halves) { cuts_.push_back(cutOf(set, perChannel, halves)); }
  void note(Set& set, const Hop& hop, int32_t place) const;
  std::vector<std::vector<bool>> groups() const;
  void addFlow(const std::vector<bool>& inside, bool entering, FlowGraph& graph, Set& set) const;
  PlainCut plainOf(const Cut& cut) const;
  void refreshPlain();

  const Problem& problem_;
  Mode mode_;
  bool ring_;
  bool grouped_ = false;
  size_t firstOfGroups_ = 0;  // among cuts_, once grouped_
  std::vector<Cut> cuts_;
  std::vector<PlainCut> plain_;  // sorted
};

}  // namespace tutti::topo
