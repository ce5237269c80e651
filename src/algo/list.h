// Every algorithm there is. A new one is added here and in its own header, nowhere else.
#pragma once

#include "algo/oneshot.h"
#include "algo/ring.h"
#include "algo/sendrecv.h"
#include "algo/tree.h"

namespace tutti::algo {

template <class... Algorithms>
struct TypeList {
  /// Calls visit.template operator()<Algorithm>() for each.
  template <class Visitor>
  static void forEach(Visitor&& visit) {
    (visit.template operator()<Algorithms>(), ...);
  }
};

using AllAlgorithms = TypeList<RingAllReduce, RingReduceScatter, RingAllGather, RingBroadcast, RingReduce, TreeAllReduce,
                               OneShotAllReduce, MessageAllToAll, MessageGather, MessageScatter, Message>;

}  // namespace tutti::algo
