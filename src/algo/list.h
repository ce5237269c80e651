// Every algorithm there is. A new one is added here and in its own header, nowhere else.
#pragma once

#include "algo/allpairs.h"
#include "algo/chain.h"
#include "algo/direct.h"
#include "algo/direct_reduce.h"
#include "algo/direct_root.h"
#include "algo/hierarchical.h"
#include "algo/oneshot.h"
#include "algo/pat.h"
#include "algo/ring.h"
#include "algo/sendrecv.h"
#include "algo/star.h"
#include "algo/tree.h"
#include "algo/twoshot.h"

namespace tutti::algo {

template <class... Algorithms>
struct TypeList {
  /// Calls visit.template operator()<Algorithm>() for each.
  template <class Visitor>
  static void forEach(Visitor&& visit) {
    (visit.template operator()<Algorithms>(), ...);
  }
};

using AllAlgorithms =
    TypeList<RingAllReduce, RingReduceScatter, RingAllGather, RingBroadcast, RingReduce, TreeAllReduce, ChainAllReduce, ChainReduce,
             ChainBroadcast, OneShotAllReduce, TwoShotAllReduce, DirectReduce, DirectReduceScatter, DirectAllGather, DirectAllToAll,
             DirectBroadcast, DirectGather, DirectScatter, PatReduceScatter, PatAllGather, HierarchicalAllReduce, HierarchicalReduceScatter,
             HierarchicalAllGather, MessageAllToAll, StarGather, StarScatter, Message, AllPairsAllReduce, StarBroadcast>;

}  // namespace tutti::algo
