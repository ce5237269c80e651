// Ring algorithms: every rank talks to its two neighbours only; bandwidth-optimal, 1 to 2 trips round the ring.
//
// All-reduce and reduce-scatter: chunk c starts at the rank after c, collects a contribution at every hop, and is complete
// at rank c. All-gather: chunk c starts at rank c and is copied at every hop. Step k of a rank handles the chunk k places
// behind it, so all links are busy at all times. Needs 2 slots a pipe: a step holds what it receives until it has sent.
// (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.)
#pragma once

#include "algo/lane.h"
#include "algo/layout.h"
#include "algo/traits.h"

namespace tutti::algo {

/// The order in which a ring combines what ends at the position `last`: from the next position on, once round.
template <class Sum>
auto ringOrder(Sum& sum, const Ring& last) {
  auto value = sum.leaf(last.at(1));
  for (int32_t k = 2; k <= last.size; ++k) value = sum.add(sum.leaf(last.at(k)), value);
  return value;
}

/// Sends partial sums once round a ring of at least two: what comes from ring.prev() next is the sum of all others for the own chunk.
/// `chunk(k)` names the chunk that ends k positions further.
template <class Lane, class Chunk>
TUTTI_HD void ringReduce(Lane& lane, const Ring& ring, Chunk&& chunk) {
  lane.contribute(in(chunk(-1)), ring.next());
  for (int32_t step = 2; step < ring.size; ++step) lane.recvReduceSend(ring.prev(), in(chunk(-step)), ring.next());
}

/// The rest of an all-gather round a ring of at least two, after the own chunk has been sent.
template <class Lane, class Chunk>
TUTTI_HD void ringGather(Lane& lane, const Ring& ring, Chunk&& chunk) {
  for (int32_t step = 1; step < ring.size - 1; ++step) lane.recvCopySend(ring.prev(), out(chunk(-step)), ring.next());
  lane.recvCopy(ring.prev(), out(chunk(1 - ring.size)));
}

struct RingAllReduce {
  static constexpr Traits kTraits{"ring", Collective::AllReduce, Needs::Pipe, Division::Shares};
  static TUTTI_HD int32_t chunks(int32_t ranks) { return ranks; }
  static TUTTI_HD int32_t lanes(int32_t) { return 1; }

  template <class Lane>
    requires Pipe<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t) {
    const Ring& ring = view.ring;
    const int32_t own = ring.self().value;
    if (ring.size == 1) return lane.reduceCopy(in(0), out(0));
    const auto chunk = [&](int32_t offset) { return ring.at(offset).value; };
    ringReduce(lane, ring, chunk);
    lane.recvReduceCopySend(ring.prev(), in(own), out(own), ring.next());
    ringGather(lane, ring, chunk);
  }

  template <class Sum>
  static auto order(Sum& sum, int32_t chunk, const LayoutView* ranks) {
    return ringOrder(sum, ranks[chunk].ring);
  }
};

struct RingReduceScatter {
  static constexpr Traits kTraits{"ring", Collective::ReduceScatter, Needs::Pipe, Division::Blocks};
  static TUTTI_HD int32_t chunks(int32_t ranks) { return ranks; }
  static TUTTI_HD int32_t lanes(int32_t) { return 1; }

  template <class Lane>
    requires Pipe<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t) {
    const Ring& ring = view.ring;
    const int32_t own = ring.self().value;
    if (ring.size == 1) return lane.reduceCopy(in(own), out(0));
    ringReduce(lane, ring, [&](int32_t offset) { return ring.at(offset).value; });
    lane.recvReduceCopy(ring.prev(), in(own), out(0));
  }

  template <class Sum>
  static auto order(Sum& sum, int32_t chunk, const LayoutView* ranks) {
    return ringOrder(sum, ranks[chunk].ring);
  }
};

struct RingAllGather {
  static constexpr Traits kTraits{"ring", Collective::AllGather, Needs::Pipe, Division::Blocks};
  static TUTTI_HD int32_t chunks(int32_t ranks) { return ranks; }
  static TUTTI_HD int32_t lanes(int32_t) { return 1; }

  template <class Lane>
    requires Pipe<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t) {
    const Ring& ring = view.ring;
    const int32_t own = ring.self().value;
    if (ring.size == 1) return lane.copy(in(0), out(own));
    lane.copySend(in(0), out(own), ring.next());
    ringGather(lane, ring, [&](int32_t offset) { return ring.at(offset).value; });
  }
};

/// Where a rank stands on the way from the root round the ring: 0 at the root, ring.size - 1 just before it.
TUTTI_HD int32_t distanceFromRoot(const LayoutView& view) {
  int32_t distance = 0;
  while (view.ring.at(-distance).value != view.root.value) ++distance;
  return distance;
}

struct RingBroadcast {
  static constexpr Traits kTraits{"ring", Collective::Broadcast, Needs::Pipe, Division::Shares};
  static TUTTI_HD int32_t chunks(int32_t) { return 1; }
  static TUTTI_HD int32_t lanes(int32_t) { return 1; }

  template <class Lane>
    requires Pipe<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t) {
    const Ring& ring = view.ring;
    const int32_t last = ring.size - 1;
    const int32_t distance = distanceFromRoot(view);
    if (last == 0) return lane.copy(in(0), out(0));
    if (distance == 0) return lane.copySend(in(0), out(0), ring.next());
    if (distance < last) return lane.recvCopySend(ring.prev(), out(0), ring.next());
    lane.recvCopy(ring.prev(), out(0));
  }
};

struct RingReduce {
  static constexpr Traits kTraits{"ring", Collective::Reduce, Needs::Pipe, Division::Shares};
  static TUTTI_HD int32_t chunks(int32_t) { return 1; }
  static TUTTI_HD int32_t lanes(int32_t) { return 1; }

  template <class Lane>
    requires Pipe<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t) {
    const Ring& ring = view.ring;
    const int32_t last = ring.size - 1;
    const int32_t distance = distanceFromRoot(view);
    if (last == 0) return lane.reduceCopy(in(0), out(0));
    if (distance == 1) return lane.contribute(in(0), ring.next());
    if (distance > 1) return lane.recvReduceSend(ring.prev(), in(0), ring.next());
    lane.recvReduceCopy(ring.prev(), in(0), out(0));
  }

  template <class Sum>
  static auto order(Sum& sum, int32_t, const LayoutView* ranks) {
    return ringOrder(sum, ranks[ranks[0].root.value].ring);
  }
};

}  // namespace tutti::algo
