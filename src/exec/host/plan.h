// What the host executor runs: recorded steps bound to the ends of their pipes and windows.
//
// Owner: the plan cache of one communicator. Immutable while it lives; holds no user pointer and no stream, so that one plan
// serves every call of its shape. The ends it points to belong to the communicator's connections and outlive it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "algo/geometry.h"
#include "algo/step.h"
#include "core/types.h"
#include "exec/host/reduce/reduce.h"
#include "transport/local/pipe.h"
#include "transport/local/window.h"

namespace tutti::exec::host {

struct BoundStep {
  algo::Kind kind = algo::Kind::Pipe;
  bool reduce = false;
  int8_t numFrom = 0;
  int8_t numTo = 0;
  int8_t lane = -1;      ///< Give, Take
  Rank peer;             ///< Await: whose arrival
  algo::ChunkRef src;
  algo::ChunkRef dst;
  transport::local::RecvEnd* from[algo::kMaxFan] = {};
  transport::local::SendEnd* to[algo::kMaxFan] = {};
  Rank fromRank[algo::kMaxFan];
  const transport::local::WindowView* window = nullptr;  ///< Store, Arrive: the peer's; Await, LoadReduce: the own one
};

struct BoundLane {
  std::vector<BoundStep> steps;                     ///< of one slice
  std::vector<transport::local::SendEnd*> sendEnds;  ///< every pipe the lane sends into, once
};

struct HostPlan {
  std::string_view algorithm;
  Collective collective = Collective::AllReduce;
  algo::Geometry geometry;
  Reduction reduction;
  uint32_t elementBytes = 1;
  Rank rank;
  int32_t ranks = 1;
  bool usesWindow = false;
  bool pastCache = false;  ///< too large to stay in the cache: what nobody reads soon is stored past it
  ReduceFn reduceFn = nullptr;            ///< null: the collective does not reduce
  std::vector<std::vector<BoundLane>> channels;  ///< [channel][lane]
};

}  // namespace tutti::exec::host
