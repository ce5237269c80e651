// Messages between pairs, and the all-to-all that is made of them.
//
// Every message is a lane of its own, so none waits for another: any set of matching messages completes.
// Lane 0 is a local copy; of the others lane 2d-1 sends to the rank d places after this one, and lane 2d receives from the rank d places
// before it.
#pragma once

#include "algo/lane.h"
#include "algo/layout.h"
#include "algo/traits.h"

namespace tutti::algo {

/// The port of what travels round rings.
inline constexpr uint8_t kRingPort = 0;
/// The port of message pipes, so that messages never mix with the traffic of rings and trees. A planner may give two ranks, who are
/// neighbours anyway, those of rings, and a star those of kStarPort.
inline constexpr uint8_t kMessagePort = 2;
/// The port of the caller's own sends and receives.
inline constexpr uint8_t kUserPort = 3;
/// What a planner may give gather and scatter, so that they have more channels than all-to-all has.
inline constexpr uint8_t kStarPort = 5;
/// How many ports there are: a program uses none from here on.
inline constexpr uint8_t kPorts = 6;

/// What lane `laneIndex` of a rank has to do with `peer`.
struct Exchange {
  Rank peer;
  bool sends;
  bool local;
};
TUTTI_HD Exchange exchangeOf(const LayoutView& view, int32_t laneIndex) {
  const int32_t distance = (laneIndex + 1) / 2;
  const bool sends = laneIndex % 2 != 0;
  const int32_t signedDistance = sends ? distance : view.ranks - distance;
  return {Rank((view.rank.value + signedDistance) % view.ranks), sends, distance == 0};
}

struct MessageAllToAll {
  static constexpr Traits kTraits{"p2p", Collective::AllToAll, Needs::Pipe, Division::Blocks};
  static TUTTI_HD int32_t chunks(int32_t ranks) { return ranks; }
  static TUTTI_HD int32_t lanes(int32_t ranks) { return 2 * ranks - 1; }

  template <class Lane>
    requires Pipe<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t laneIndex) {
    const Exchange exchange = exchangeOf(view, laneIndex);
    lane.usePort(kMessagePort);
    if (exchange.local) {
      lane.copy(in(exchange.peer.value), out(exchange.peer.value));
    } else if (exchange.sends) {
      lane.send(in(exchange.peer.value), exchange.peer);
    } else {
      lane.recvCopy(exchange.peer, out(exchange.peer.value));
    }
  }
};

/// One message of a pair: the same header serves the caller's ncclSend (lane 0) and ncclRecv (lane 1); `view.root` is the
/// other side. A rank's message to itself is a copy, in lane 0.
struct Message {
  static constexpr Traits kTraits{"p2p", Collective::SendRecv, Needs::Pipe, Division::Shares};
  static TUTTI_HD int32_t chunks(int32_t) { return 1; }
  static TUTTI_HD int32_t lanes(int32_t) { return 2; }

  template <class Lane>
    requires Pipe<Lane>
  static TUTTI_HD void run(Lane& lane, const LayoutView& view, int32_t laneIndex) {
    lane.usePort(kUserPort);
    if (view.root == view.rank) {
      if (laneIndex == 0) lane.copy(in(0), out(0));
    } else if (laneIndex == 0) {
      lane.send(in(0), view.root);
    } else {
      lane.recvCopy(view.root, out(0));
    }
  }
};

}  // namespace tutti::algo
