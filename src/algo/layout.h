// What an algorithm may know of its channel: who it is, who its neighbours are. Views only; connect/ builds and owns them.
// Plain values, trivially copyable, the same on host and device.
#pragma once

#include "algo/step.h"

namespace tutti::algo {

/// A cycle through some or all ranks, seen from one of them: every `stride`-th place of `order`, from `first` on. A null order means
/// order[i] == i.
struct Ring {
  const int32_t* order = nullptr;
  int32_t size = 1;
  int32_t position = 0;
  int32_t stride = 1;
  int32_t first = 0;

  /// The rank `offset` positions further round the ring (offset from -size to size).
  TUTTI_HD Rank at(int32_t offset) const {
    int32_t p = position + offset;
    if (p < 0) p += size;
    if (p >= size) p -= size;
    p = first + p * stride;
    return Rank(order == nullptr ? p : order[p]);
  }
  TUTTI_HD Rank self() const { return at(0); }
  TUTTI_HD Rank next() const { return at(1); }
  TUTTI_HD Rank prev() const { return at(-1); }
};

/// A rank's place in a spanning tree: no parent at the root, no children at a leaf.
struct Tree {
  Rank parent{-1};
  Peers children;

  TUTTI_HD bool isRoot() const { return parent.value < 0; }
  TUTTI_HD bool isLeaf() const { return children.count == 0; }
};

inline constexpr int kTrees = 2;

/// Ranks as nodes with the same number of ranks each, seen from one of them: rank `local` of node `node` stands at place
/// node * locals + local of `order`.
struct Grid {
  const int32_t* order = nullptr;
  int32_t nodes = 1;
  int32_t locals = 1;
  int32_t node = 0;
  int32_t local = 0;

  /// The ranks of this node, and those with this local number on all nodes.
  TUTTI_HD Ring inside() const { return {order, locals, local, 1, node * locals}; }
  TUTTI_HD Ring across() const { return {order, nodes, node, locals, local}; }
  /// The rank that stands so many nodes and places further round (from -nodes to nodes, -locals to locals).
  TUTTI_HD Rank at(int32_t nodeOffset, int32_t localOffset) const {
    const int32_t other = (node + nodeOffset + nodes) % nodes;
    return Ring{order, locals, local, 1, other * locals}.at(localOffset);
  }
};

/// Everything that an algorithm sees.
struct LayoutView {
  Rank rank{0};
  int32_t ranks = 1;
  Rank root{0};
  Ring ring;
  Grid grid;
  Tree tree[kTrees];
};
static_assert(std::is_trivially_copyable_v<LayoutView>);

}  // namespace tutti::algo
