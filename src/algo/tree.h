// Double binary tree all-reduce: up to the root and down again, logarithmic in the rank count.
//
// Two trees share the work, each on its own half of the data; a rank that is inner in one is (almost always) a leaf in the
// other, so that no rank carries more than its share. Up and down are lanes of their own, so that a slice can go down while
// the next comes up; the root hands slices over from one to the other.
// (Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009.)
#pragma once

#include "algo/lane.h"
#include "algo/layout.h"
#include "algo/traits.h"

namespace tutti::algo {

/// A rank's own contribution first, then its children's sums as listed.
template <class Sum>
auto treeOrder(Sum& sum, int32_t tree, Rank rank, const LayoutView* ranks) -> decltype(sum.leaf(rank)) {
  const Peers& children = ranks[rank.value].tree[tree].children;
  const auto own = sum.leaf(rank);
  const auto from = [&](int32_t child) { return treeOrder(sum, tree, children.at(child), ranks); };
  if (children.count == 0) return own;
  if (children.count == 1) return sum.add(own, from(0));
  if (children.count == 2) return sum.add(own, from(0), from(1));
  return sum.add(own, from(0), from(1), from(2));
}

struct TreeAllReduce {
  static constexpr Traits kTraits{"tree", Collective::AllReduce, Needs::Pipe, Division::Shares};
  static TUTTI_HD int32_t chunks(int32_t) { return kTrees; }
  static TUTTI_HD int32_t lanes(int32_t) { return 2 * kTrees; }

  template <class Lane>
    requires Pipe<Lane> && HandOver<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t laneIndex) {
    const int32_t half = laneIndex / 2;  // the tree, and the chunk that it carries
    lane.usePort(static_cast<uint8_t>(half));
    if (laneIndex % 2 == 0) {
      up(lane, view.tree[half], half, static_cast<int8_t>(laneIndex + 1));
    } else {
      down(lane, view.tree[half], half, static_cast<int8_t>(laneIndex - 1));
    }
  }

  template <class Sum>
  static auto order(Sum& sum, int32_t chunk, const LayoutView* ranks) {
    int32_t root = 0;
    while (!ranks[root].tree[chunk].isRoot()) ++root;
    return treeOrder(sum, chunk, Rank(root), ranks);
  }

 private:
  template <class Lane>
  static TUTTI_HD void up(Lane& lane, const Tree& tree, int32_t half, int8_t downLane) {
    if (tree.isRoot() && tree.isLeaf()) return lane.reduceCopy(in(half), out(half));
    if (tree.isLeaf()) return lane.contribute(in(half), tree.parent);
    if (!tree.isRoot()) return lane.recvReduceSend(tree.children, in(half), tree.parent);
    lane.recvReduceCopy(tree.children, in(half), out(half));
    lane.give(downLane);
  }

  template <class Lane>
  static TUTTI_HD void down(Lane& lane, const Tree& tree, int32_t half, int8_t upLane) {
    if (tree.isRoot() && tree.isLeaf()) return;
    if (tree.isLeaf()) return lane.recvCopy(tree.parent, out(half));
    if (!tree.isRoot()) return lane.recvCopySend(tree.parent, out(half), tree.children);
    lane.take(upLane);
    lane.send(out(half), tree.children);
  }
};

}  // namespace tutti::algo
