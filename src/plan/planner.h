// From the shape of a call to a plan that can run: choose, record, divide, bind.
//
// Owner: the communicator. Called by the thread that uses the communicator; not thread-safe.
// 1. A plan depends on the shape alone, never on buffers or streams.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "connect/connections.h"
#include "connect/layout.h"
#include "exec/host/plan.h"
#include "exec/record/cost.h"
#include "tune/choose.h"
#include "tune/model.h"
#include "tune/tuner.h"

namespace tutti::plan {

/// A sender may be so many messages ahead of who reads them, and boards, which keep 64 runs of like calls, still tell them apart.
inline constexpr uint32_t kMostSlotsOfLate = 32;

/// What distinguishes one plan from another. `root` is the peer of a message; `receives` tells its two directions apart.
struct Shape {
  Collective collective = Collective::AllReduce;
  DataType type = DataType::F32;
  ReduceOp op = ReduceOp::Sum;
  Scaling scaling;
  uint64_t count = 0;  ///< as the caller gave it, in elements
  Rank root{0};
  bool receives = false;

  friend bool operator==(const Shape&, const Shape&) = default;
};

struct Settings {
  int32_t channels = 1;
  uint32_t slots = 4;              ///< of a pipe, at least 2: few enough that what travels stays in the cache
  uint64_t sliceBytes = 262144;    ///< what a slot of a reducing pipe holds
  uint64_t messageBytes = 4 << 20;  ///< slices of messages, which pass by reference
  uint64_t farMessageBytes = 512 << 10;  ///< the same where ranks are on several hosts: enough for a piece on each of eight sockets
  uint64_t lentBytes = 8 << 20;    ///< slices of windows whose contents stay where they lie, of all ranks together
  uint64_t sharedBytes = 1 << 20;  ///< what a rank's peers in other processes leave in a bank of its window at once, all together
  uint64_t pastCacheBytes = 0;     ///< results of calls from here on are stored past the cache; 0: where cacheShare has no room
  uint64_t cacheShare = 16 << 20;  ///< of the last-level cache, a rank's, of which its buffers and staging memory surely have half
  uint64_t copiedBytes = 2 << 20;  ///< the same where they copy by system call instead; what there is room for
  bool spansProcesses = false;     ///< what a slice holds must fit into slots and cells: nobody is sure to read it where it lies
  bool spansHosts = false;         ///< no window that all ranks see
  uint32_t copies = 0;             ///< by system call, from processes of the same host: what reach a reader needs; the same on all ranks
  int32_t nodeRanks = 0;           ///< ranks of a node; 0: all are on one
  bool deterministic = false;      ///< reductions in rank order only
  exec::host::SimdLevel simd{};
  tune::Restrictions restrictions;
  tune::Filter protocols;  ///< NCCL_PROTO, which belongs to links of GPUs: host devices have one protocol
  tune::Machine machine = tune::hostMachine();
  std::shared_ptr<tune::Tuner> tuner;  ///< null: nobody is asked
  int32_t maxChannels = 64;            ///< what a tuner may have
  std::string constants = "host";  ///< whose numbers those are
};

/// A plan in numbers, for `explain` and the benchmark's yardstick. Bytes and steps are this rank's.
struct Summary {
  std::string_view algorithm;
  std::string_view kernel;    ///< on a device; empty: host threads
  std::string_view protocol;  ///< as NCCL_PROTO calls it; likewise
  std::string tuner;          ///< what it said; empty: nobody was asked
  int32_t channels = 0;
  std::vector<std::vector<int32_t>> rings;  ///< of the layout's tracks: channel c has ring c mod their number
  int32_t lanes = 0;
  int32_t slices = 0;
  uint32_t slots = 0;
  uint64_t sliceBytes = 0;
  exec::record::Traffic traffic;
  tune::Cost cost;
  double estimatedUs = 0;
};

/// A way of carrying out a call that was not taken.
struct Rejected {
  std::string algorithm;
  std::string kernel;
  std::string protocol;
  int32_t channels = 0;     ///< 0: it did not come to that
  double estimatedUs = -1;  ///< less than 0: likewise
  std::string reason;
};

/// Why what takes so long was not chosen.
std::string slower(double us, double bestUs, const tune::Advice& advice = {});

class Planner {
 public:
  Planner(const connect::Layout& layout, connect::Connections& connections, Rank rank, const Settings& settings)
      : layout_(layout),
        connections_(connections),
        rank_(rank),
        settings_(settings),
        model_(layout, settings.machine),
        adviser_(settings.tuner) {}

  Result<std::shared_ptr<const exec::host::HostPlan>> makePlan(const Shape& shape);
  /// What makePlan() would choose, without opening anything. `rejected`, unless null, gets all else, and why.
  Result<Summary> summarize(const Shape& shape, std::vector<Rejected>* rejected = nullptr);
  /// Other constants for what is planned from now on, for who fits them.
  void use(const tune::Machine& machine) {
    settings_.machine = machine;
    model_.use(machine);
  }

 private:
  struct Draft;
  uint64_t cellBytes(bool copies) const;
  std::string_view whyLast(const exec::record::Algorithm& algorithm, const Shape& shape,
                           const std::vector<const exec::record::Algorithm*>& allowed) const;
  bool copies(const algo::Traits& traits, const Shape& shape, uint64_t bytes) const;
  uint64_t held(Collective collective, uint64_t bytes) const;
  bool isPastCache(Collective collective, uint64_t bytes) const;
  bool triesCache(Collective collective, uint64_t bytes) const;
  int32_t channelsFor(const Shape& shape) const;
  Draft divide(const exec::record::Algorithm& algorithm, const Shape& shape, int32_t channels);
  Result<Draft> draft(const Shape& shape, std::vector<Rejected>* rejected);
  Status bind(const Draft& draft, exec::host::HostPlan& plan);
  Result<exec::host::BoundStep> bindStep(const exec::record::Step& step, ChannelId channel, const Draft& draft,
                                         exec::host::BoundLane& lane);

  const connect::Layout& layout_;
  connect::Connections& connections_;
  Rank rank_;
  Settings settings_;
  tune::Model model_;
  tune::Adviser adviser_;
};

}  // namespace tutti::plan
