// One rank's communicator: everything that its calls need, owned by value.
//
// Owner: the process, through its handle. Used by one thread at a time, except abort(), asyncError() and readers of the
// flight recorder, which any thread may call.
// 1. Work runs in the order in which it was issued (tickets), on whatever streams.
// 2. The first error stays: every later call returns it, and so does asyncError().
// 3. Nothing of this rank's is touched by a peer after finalize() or abort() has returned.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/red_ops.h"
#include "connect/connections.h"
#include "connect/layout.h"
#include "exec/host/launch.h"
#include "exec/host/signature.h"
#include "exec/host/work.h"
#include "observe/flight_recorder.h"
#include "plan/cache.h"
#include "plan/planner.h"
#include "transport/local/hub.h"

namespace tutti::comm {

/// So that nanoseconds stay far from the largest number.
inline constexpr int64_t kLongestTimeoutMs = int64_t{1} << 43;

/// What ncclConfig_t and its environment variables come to.
struct Config {
  int32_t minCtas = 1;
  int32_t maxCtas = 64;
  std::string name;
};

/// A collective or message as the caller gave it; arguments not yet checked.
struct CallRequest {
  const char* function = "";  ///< the API's name, for errors
  Collective collective = Collective::AllReduce;
  const void* in = nullptr;
  void* out = nullptr;
  uint64_t count = 0;
  int32_t type = 0;
  int32_t op = 0;
  int32_t root = 0;      ///< or the peer of a message
  bool receives = false;  ///< a message: this rank is the receiver
};

/// A checked and planned call on its way into a launch.
struct PendingCall {
  class Communicator* comm = nullptr;
  exec::host::Call call;
  exec::host::PlannedCall planned;  ///< without a plan: no data, or a message of a rank to itself, paired when it is launched
  std::shared_ptr<exec::host::Stream> stream;
  Rank peer;
  bool receives = false;
};

class Communicator {
 public:
  /// `hash` names the communicator in logs. Fails when the environment asks for what does not exist.
  static Result<std::unique_ptr<Communicator>> create(std::shared_ptr<transport::local::Hub> hub, Rank rank, int32_t ranks, int32_t device,
                                                      uint64_t hash, const Config& config);

  Rank rank() const { return turn_->rank; }
  int32_t ranks() const { return layout_.ranks(); }
  int32_t device() const { return device_; }
  uint64_t hash() const { return hash_; }
  RedOps& redOps() { return redOps_; }
  int32_t spins() const { return spins_; }

  /// The stored error, if there is one, or what else makes the communicator unusable.
  Status usable() const;

  /// Checks a call in the documented order and plans it.
  Result<PendingCall> prepare(const CallRequest& request);
  /// The plan that the call would get, in numbers.
  Result<plan::Summary> explain(const CallRequest& request);
  exec::host::SimdLevel simd() const { return settings_.simd; }

  /// Turns calls of this communicator, in issue order, into one piece of work: collectives one after the other, messages of
  /// each pair and direction in order, everything else at the same time. InvalidUsage when a message of this rank to itself
  /// has no partner; nothing is issued then.
  Status pairSelfMessages(std::vector<PendingCall>& calls);
  std::unique_ptr<exec::host::Work> issue(std::span<PendingCall> calls);
  /// Runs one call on this thread to its end, without allocating.
  Status runAlone(PendingCall& call);

  /// Waits for all work that was issued. InvalidArgument the second time.
  Status finalize();
  bool isFinalized() const { return finalized_; }
  /// Waits until the turn of the last issued work is over. After a failure, works on streams may still be queued; they end without
  /// touching anything of the caller's.
  void drain();
  /// Tells the peers that this rank will make no further call.
  void depart() { hub().depart(rank(), issuedCollectives_); }
  /// Makes all ranks of this process give up; bounded.
  void abort();
  Code asyncError() const { return hub().latch(rank()).code(); }

  /// The longest wait of a call; 0: no limit. Any thread.
  void setTimeout(int64_t milliseconds) { turn_->timeoutNs.store(milliseconds * 1'000'000, std::memory_order_relaxed); }
  /// Why a wait gave up, as tuttiCommGetVerdict tells it. Any thread.
  std::string verdictJson() const { return exec::host::verdictJson(hub()); }

  std::span<const std::byte> flightBytes() const { return shared_->flight.bytes(); }

 private:
  /// What work on a stream still looks at after an abort has freed the communicator.
  struct Shared {
    Shared(std::shared_ptr<transport::local::Hub> hub, Rank rank) : connections(*hub, rank) {
      turn.hub = std::move(hub);
      turn.rank = rank;
    }
    exec::host::Turn turn;
    connect::Connections connections;
    observe::FlightMemory flight;
  };

  Communicator(std::shared_ptr<Shared> shared, int32_t ranks, int32_t device, uint64_t hash);
  Result<plan::Shape> shapeOf(const CallRequest& request, ResolvedOp& op) const;
  Result<std::shared_ptr<const exec::host::HostPlan>> planFor(const plan::Shape& shape);
  void assign(PendingCall& call);

  transport::local::Hub& hub() const { return *turn_->hub; }

  std::shared_ptr<Shared> shared_;
  std::shared_ptr<exec::host::Turn> turn_;  // shared_->turn
  connect::Layout layout_;
  plan::Settings settings_;
  std::unique_ptr<plan::Planner> planner_;
  plan::Cache plans_{256};
  RedOps redOps_;
  int32_t device_;
  uint64_t hash_;
  std::string name_;
  int32_t spins_ = 0;

  uint64_t issuedWorks_ = 0;
  uint64_t issuedCollectives_ = 0;
  uint64_t nextEpoch_ = 1;  // of the window; 0 is what fresh cells hold
  std::atomic<bool> finalized_ = false;  // exchanged by finalize(), which a second thread may call too

  std::unique_ptr<exec::host::Work> alone_[1];  // reused by runAlone; used on the calling thread only
};

}  // namespace tutti::comm
