// What the host executor runs: recorded steps bound to the ends of their pipes and windows.
//
// Owner: the plan cache of one communicator. Immutable while it lives, but for what its calls try; holds no user pointer and no stream,
// so that one plan serves every call of its shape. The ends it points to belong to the communicator's connections and outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "algo/geometry.h"
#include "algo/step.h"
#include "core/types.h"
#include "exec/host/cache_choice.h"
#include "exec/host/reduce/reduce.h"
#include "transport/local/neighbour.h"
#include "transport/local/pipe.h"
#include "transport/local/window.h"

namespace tutti::exec::host {

/// Below, a system call takes longer than the copies that it saves.
inline constexpr uint64_t kCopyCallBytes = 65536;

/// The most pipes that a step receives from or sends to: ranks at doubling distances, or all of a group.
inline constexpr int kMostLinks = 31;

struct Source {
  transport::local::RecvEnd* end = nullptr;
  Rank rank;
  transport::local::Neighbour* neighbour = nullptr;  ///< the sender's process, if it is another one
  const transport::local::PipeView* lead = nullptr;  ///< where what is kInLead lies; null: nothing is
};

struct BoundStep {
  algo::Kind kind = algo::Kind::Pipe;
  bool reduce = false;
  int8_t numFrom = 0;
  int8_t numTo = 0;
  bool fansOut = false;  ///< Pipe: to several, whose pipes carry the same messages. Store: one of those that give all others the same
  int8_t lane = -1;      ///< Give, Take
  uint8_t round = 0;     ///< windows
  Rank peer;             ///< Await, Load: whose arrival. Store: who gets it
  algo::ChunkRef src;
  algo::ChunkRef dst;
  uint32_t firstFrom = 0;  ///< of BoundLane::sources
  uint32_t firstTo = 0;    ///< of BoundLane::targets
  const transport::local::WindowView* window = nullptr;  ///< Store, Arrive: the peer's; Await, Load, LoadReduce: the own one
  transport::local::StoreChoice* stores = nullptr;       ///< Store: for the peer
};

struct BoundLane {
  std::vector<BoundStep> steps;                     ///< of one slice
  std::vector<Source> sources;                      ///< numFrom a step
  std::vector<transport::local::SendEnd*> targets;   ///< numTo a step
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
  int32_t rounds = 0;      ///< epochs of the window that a slice takes
  uint32_t copies = 0;     ///< of a neighbour that reaches any of these: it may copy by system call what nobody computes with
  bool lends = false;      ///< what is stored for peers may stay in this rank's buffers until it was read
  bool places = false;     ///< lends, and results are written to all outputs at once, as far as those can be written: past the cache
  std::vector<transport::local::Neighbour*> neighbours;  ///< by rank, where plans use the window: as in Source
  std::vector<const transport::local::WindowView*> windows;  ///< of all ranks, where plans lend
  std::vector<transport::local::StoreChoice*> stores;        ///< for all ranks but the own one, there
  transport::local::StoreChoice* results = nullptr;  ///< for results that are written to other ranks' outputs, where plans place them
  bool pastCache = false;  ///< too large to stay in the cache: what nobody reads soon is stored past it
  std::unique_ptr<CacheChoice> cacheChoice;  ///< of calls that may be or not: says it of each instead; null: all are as `pastCache` says
  ReduceFn reduceFn = nullptr;            ///< null: the collective does not reduce
  std::vector<std::vector<BoundLane>> channels;  ///< [channel][lane]
};

}  // namespace tutti::exec::host
