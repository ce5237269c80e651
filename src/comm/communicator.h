// One rank's communicator: everything that its calls need, owned by value.
//
// Owner: the process, through its handle. Used by one thread at a time, except abort(), revoke(), state() and readers of the
// flight recorder, which any thread may call.
// 1. Work runs in the order in which it was issued (tickets), on whatever streams. Calls that take no ticket, as they need no work, are
//    made when all works have ended.
// 2. The first error stays: every later call returns it, and so does state().
// 3. Nothing of this rank's is touched by a peer after finalize(), revoke() or abort() has returned.
// 4. Before it is open there are a rank, a size and set-ups only; `open_` (release) publishes the rest to threads that see it (acquire).
#pragma once

#include <atomic>
#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/config.h"
#include "comm/device_rank.h"
#include "comm/meeting.h"
#include "comm/red_ops.h"
#include "comm/setup.h"
#include "comm/shared.h"
#include "connect/connections.h"
#include "connect/layout.h"
#include "exec/host/eager_message.h"
#include "exec/host/launch.h"
#include "exec/host/signature.h"
#include "exec/host/work.h"
#include "observe/flight_recorder.h"
#include "plan/cache.h"
#include "plan/explanation.h"
#include "plan/planner.h"
#include "topo/affinity.h"
#include "transport/local/hub.h"

namespace tutti::comm {

class Opening;

/// So that nanoseconds stay far from the largest number.
inline constexpr int64_t kLongestTimeoutMs = int64_t{1} << 43;

/// A collective or message as the caller gave it; arguments not yet checked.
struct CallRequest {
  const char* function = "";  ///< the API's name, for errors
  Collective collective = Collective::AllReduce;
  const void* in = nullptr;
  void* out = nullptr;
  uint64_t count = 0;
  int32_t type = 0;
  int32_t op = 0;
  int32_t root = 0;       ///< or the peer of a message
  bool receives = false;  ///< a message: this rank is the receiver

  /// Whether it differs from another one in its buffers at most.
  bool isLike(const CallRequest& other) const {
    // Not one after the other: compilers would bring them into one word, through memory.
    const int32_t differs = (type ^ other.type) | (op ^ other.op) | (root ^ other.root);
    return collective == other.collective && receives == other.receives && count == other.count && differs == 0;
  }
};

/// A checked and planned call on its way into a launch.
struct PendingCall {
  class Communicator* comm = nullptr;
  ncclComm* handle = nullptr;  ///< its; from when a group has the call
  exec::host::Call call;
  exec::host::PlannedCall planned;  ///< without a plan: no data, or a message of a rank to itself, paired when it is launched
  std::shared_ptr<exec::host::Stream> stream;
  Rank peer;
  bool receives = false;
  bool isLatest = false;  ///< the communicator remembers it for the next call like it
  bool isEager = false;   ///< of a latest one: no larger than what is always copied
  exec::host::EagerEnd eager;  ///< of a message that can be passed without a work
  bool isPassed = false;       ///< and has been
};

struct RepeatedMessage;  // group.h

class Communicator {
 public:
  /// A rank without peers yet. `hash` names the communicator in logs; `shared` (null: of its own) is what it shares with its parent.
  /// `onGpu`: `device` is a GPU.
  Communicator(Rank rank, int32_t ranks, int32_t device, uint64_t hash, Config config, std::shared_ptr<Shared> shared = nullptr,
               bool onGpu = false);
  /// The same, opened, for ranks that met elsewhere.
  static Result<std::unique_ptr<Communicator>> create(std::shared_ptr<transport::local::Hub> hub, Rank rank, int32_t ranks, int32_t device,
                                                      uint64_t hash, const Config& config, std::shared_ptr<Shared> shared = nullptr);
  /// The ranks have met, and agreed on their channels. Fails when the environment asks for what does not exist.
  Status open(const Outcome& outcome);
  bool isOpen() const { return open_.load(std::memory_order_acquire); }
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  /// After open(): Ready when the GPUs of all ranks see each other's memory, at once for host devices. Failed: `cause`.
  Poll connectGpu(Status& cause);

  Rank rank() const { return rank_; }
  int32_t ranks() const { return ranks_; }
  int32_t device() const { return device_; }
  uint64_t hash() const { return hash_; }
  const Config& config() const { return config_; }
  bool isBlocking() const { return config_.blocking; }
  bool isOnGpu() const { return onGpu_; }
  /// What of its place and its GPU all ranks have to know; the GPU is opened when this is first asked.
  Status describe(Arrival& arrival) const;
  const std::shared_ptr<Shared>& shared() const { return shared_; }
  transport::local::Hub& hub() const { return *turn_->hub; }
  RedOps& redOps() { return redOps_; }
  int32_t spins() const { return spins_; }

  // ---- its state (life.cc)

  /// Drives what is under way, and says what ncclCommGetAsyncError says: InProgress while something is. Any thread.
  Code state();
  /// InvalidArgument while something is under way.
  Status checkReady();
  /// What makes the communicator unusable for calls: revoked, not ready, an error, finalized; in this order.
  Status usable();
  /// The same for making a child of it: revoked is no hindrance, and with `stopsWork` neither is what is under way.
  Status dividable(bool stopsWork);
  /// The same for destroying it.
  Status destroyable();
  /// On a non-blocking communicator an error of a call is its state from then on; only an abort follows. Whether it was the first.
  bool poison(const Status& cause);

  /// Takes a started set-up, or calls that are not launched yet, into the state.
  void follow(std::shared_ptr<Setup> setup);
  void follow(std::shared_ptr<Opening> opening);
  /// Work issued so far keeps the state at InProgress until it is complete.
  void followWork() { busyUntil_.store(issuedWorks_.load(std::memory_order_relaxed), std::memory_order_relaxed); }

  /// Waits for all work that was issued; on a non-blocking communicator the state does. Why the communicator failed meanwhile, if it did.
  /// InvalidArgument the second time.
  Status finalize();
  bool isFinalized() const { return finalized_; }
  /// Waits until the turn of the last issued work is over, or there is an error: work that is still queued on streams ends without
  /// touching anything of the caller's.
  void drain();
  bool isDrained() const;
  /// Drained, and not failed: what of its calls was still to be compared with the peers'. Its failure is the communicator's.
  Status settleOwed() { return alone_->settleOwed(); }
  /// Finalizes it, if that has not been done, and drains it.
  void close();
  /// Tells the peers that this rank will make no further call.
  void depart();
  /// Makes all ranks of this process give up, here and in communicators that share; bounded.
  void abort();
  /// Ends all work in flight; the communicator remains for its children. InvalidArgument the second time.
  Status revoke();
  bool isRevoked() const { return revoked_; }
  /// Ends all work in flight with `cause`, on every rank.
  void stop(const Status& cause);
  /// `cause` is why this rank will not make a call that others may wait for: where it is a lack, they hear of it (RemoteError), the
  /// verdict suspects this rank, and the communicator is over on every rank, as after stop(), which it waits for. By the thread that makes
  /// the call. Returns the cause.
  Status forgo(Status cause);

  /// The number of a collective call that is no work.
  uint64_t takeSequence() { return issuedCollectives_++; }
  uint64_t nextSequence() const { return issuedCollectives_; }
  /// Numbers a child among those of its kind, and among all.
  void countChild(ChildKey& key) { key.number = childrenOfKind_[{key.mayBeBroken, key.members}]++; }
  int32_t countChild() { return ++children_; }
  const std::shared_ptr<transport::local::Hub>& sharedHub() const { return turn_->hub; }
  /// Of its hosts; null where there is one.
  const std::shared_ptr<const Sites>& sites() const { return sites_; }

  // ---- its calls (communicator.cc)

  /// Checks a call in the documented order and plans it.
  Result<PendingCall> prepare(const CallRequest& request);
  /// The plan that the call would get, why, and what else there was.
  Result<plan::Explanation> explain(const CallRequest& request);
  /// The same for a call that has been planned.
  Result<plan::Summary> summarize(const PendingCall& call) const;
  exec::host::SimdLevel simd() const { return settings_.simd; }

  /// Turns calls of this communicator, in issue order, into one piece of work: collectives one after the other, messages of
  /// each pair and direction in order, everything else at the same time. InvalidUsage when a message of this rank to itself
  /// has no partner; nothing is issued then.
  Status pairSelfMessages(std::vector<PendingCall>& calls);
  std::unique_ptr<exec::host::Work> issue(std::span<PendingCall> calls);
  /// The same for at most kMostKept calls that run on this thread, in a work that is kept: allocates nothing where groups repeat. To be
  /// driven to its end before the communicator has another call. std::bad_alloc: the communicator has failed.
  static constexpr size_t kMostKept = 64;
  exec::host::Work& issueHere(std::span<PendingCall> calls);
  /// Runs one call on this thread to its end, without allocating.
  Status runAlone(PendingCall& call);
  /// Makes a call like the latest one that ran alone, with what was found out then. Failed: it is none, or something is out of the
  /// ordinary; nothing has been done. Pending: finishAgain() makes the rest of the call, and says how it ended.
  Poll runAgain(const CallRequest& request) {
    if (!runsAgain_ || !latest_.request.isLike(request) || request.in == nullptr || request.out == nullptr) return Poll::Failed;
    if (finalized_.load(std::memory_order_relaxed) || revoked_.load(std::memory_order_relaxed)) [[unlikely]]
      return Poll::Failed;
    const Poll poll = alone_->runAgain(request.in, request.out, issuedCollectives_, nextEpoch_);
    if (poll == Poll::Failed) [[unlikely]]
      return poll;
    ++issuedCollectives_;
    nextEpoch_ += latestEpochs_;
    return poll;
  }
  Status finishAgain();
  /// Makes a message like an earlier one, outside of groups. Failed: there was none, or it has to wait; nothing has been done.
  Poll messageAgain(const CallRequest& request) {
    PendingCall* const like = find(request);  // first: one that is not open has none, and nothing else either
    return like != nullptr && mayPass() && pass(*like, request) ? Poll::Ready : Poll::Failed;
  }
  /// Whether there was such a message, which can be passed without a work, and the communicator can be used.
  bool knows(const CallRequest& request) { return find(request) != nullptr && usable().ok(); }
  /// The call for a message that was known. It is not checked again, as it was when it joined its group, but for a kind that has been
  /// forgotten meanwhile.
  Result<PendingCall> spellOut(const CallRequest& request);
  /// Passes messages of a group and takes them out of the list, as long as none has to wait, where all can be passed without a work.
  void passEagerly(std::vector<PendingCall>& calls);
  void passEagerly(std::vector<RepeatedMessage>& messages);

  // ---- the same on a GPU (communicator_gpu.cc)

  Result<DeviceCall> prepareOnGpu(const CallRequest& request, driver::cuda::Stream stream);
  Status pairSelfMessages(std::vector<DeviceCall>& calls);
  /// Whether any of their streams is in a capture.
  Result<bool> isCapturedOnGpu(std::span<const DeviceCall> calls) { return gpu_->isCaptured(calls); }
  Status checkStreamsOnGpu(std::span<const DeviceCall> calls) { return gpu_->checkStreams(calls); }
  /// Says to the peers which collectives come next, and where this rank's part is of what they need beyond their launch.
  Status offerOnGpu(std::span<DeviceCall> calls);
  /// Ready when the peers' parts are there too.
  Poll settleOnGpu(std::span<DeviceCall> calls, Status& cause);
  /// Whose part settleOnGpu() lacks.
  Rank missingOnGpu() const { return gpu_ == nullptr ? Rank(-1) : gpu_->missing(); }
  /// Numbers the calls and puts them on their streams; they were offered and are settled.
  Status launchOnGpu(std::span<DeviceCall> calls);
  /// Decides how planned calls are carried out: kernels or copy engines.
  Status chooseOnGpu(std::span<DeviceCall> calls);
  /// Registers memory of the user, the next of this rank; settleWindows() is Ready when all ranks have done the same, and know of it.
  Result<transport::device::UserWindows::Ref> beginWindow(void* base, uint64_t bytes, bool isSymmetric);
  Poll settleWindows(Status& cause);
  /// InvalidArgument: it is none.
  Status endWindow(const void* window);
  const memory::Budget& gpuBudget() const { return gpu_->device().budget; }
  const memory::Budget& hostBudget() const { return gpu_->device().hostBudget; }

  /// The longest wait of a call; 0: no limit. Any thread, once it is open.
  void setTimeout(int64_t milliseconds) {
    turn_->timeoutNs.store(milliseconds * 1'000'000, std::memory_order_relaxed);
    hub().waitAtMost(std::chrono::milliseconds(milliseconds));
    if (gpu_ != nullptr) gpu_->limitWaits(static_cast<uint64_t>(milliseconds) * 1'000'000);
  }
  int64_t timeoutMs() const { return turn_->timeoutNs.load(std::memory_order_relaxed) / 1'000'000; }
  /// Why a wait gave up, or what ended the communicator while nobody waited, as tuttiCommGetVerdict tells it. Any thread, once it is open.
  std::string verdictJson();

  std::span<const std::byte> flightBytes() const;

 private:
  /// What work on a stream still looks at after an abort has freed the communicator.
  struct Lasting {
    Lasting(std::shared_ptr<transport::local::Hub> hub, Rank rank) : connections(*hub, rank) {
      turn.hub = std::move(hub);
      turn.rank = rank;
    }
    exec::host::Turn turn;
    connect::Connections connections;
    observe::FlightMemory flight;
  };

  Poll advanceSetups();
  bool isWorking() const;
  Status openParts(const Outcome& outcome);
  /// Whoever waits for this rank learns why it will not come.
  void tellOfFailedInit(transport::local::Hub& hub, const Status& cause) const;
  Status openGpu(const Outcome& outcome);
  void lookAtGpu();
  /// The log, and ncclGetLastError, tell once what has ended the communicator.
  void sayWhy();
  /// The others hear how many calls there were in all. Once finalized and drained.
  void tellFinalized();
  /// Says to the peers which collectives come next, and returns the number after theirs.
  uint64_t postOnGpu(std::span<DeviceCall> calls);
  /// The latest collectives beside those of the peers that have come as far: whether all agree.
  Status compareOnGpu();
  /// The verdict of the communicator, unless it has one. Its cause.
  Status concludeMismatch(const Call& own, Rank peer, const Call& theirs);
  Poll lookWhilePending(Poll poll, Status& cause);
  /// The same for the two before number `end` and one peer, another one each time: for every call.
  Status compareWithOne(uint64_t end);
  void waitForGpu();
  template <class Look>
  Poll lookForRanks(Look&& look, Status& cause);
  void nameExporter(const CallRequest& request, exec::host::PlannedCall& call) const;
  Result<plan::Shape> shapeOf(const CallRequest& request, ResolvedOp& op);
  Result<PendingCall> prepareNew(const CallRequest& request);
  Result<std::shared_ptr<const exec::host::HostPlan>> planFor(const plan::Shape& shape);
  void assign(PendingCall& call);
  void addAll(exec::host::Work& work, std::span<PendingCall> calls);
  void number(exec::host::PlannedCall& call);
  void takeEpochs(exec::host::PlannedCall& call);
  /// A call that was prepared, for those like it.
  struct Known {
    CallRequest request;
    PendingCall call;  // its buffers are those of any like it; without a communicator while there is none
  };
  static size_t placeOf(const CallRequest& request) {
    constexpr uint64_t kMix = 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio
    const uint64_t key = (request.count * 4096 + static_cast<uint64_t>(request.root)) * 2 + (request.receives ? 1 : 0);
    return key * kMix >> (64 - std::countr_zero(kKnown));
  }
  /// What was remembered of a message like that, which can be passed without a work and has a buffer.
  PendingCall* find(const CallRequest& request) {
    if (known_.empty()) return nullptr;
    Known& known = known_[placeOf(request)];
    const bool fits = known.request.isLike(request) && known.call.eager && (request.receives ? request.out : request.in) != nullptr;
    return fits ? &known.call : nullptr;
  }
  /// Whether a message may be passed without a work now: there is none, and no call that is to be compared first.
  bool mayPass() {
    if (finalized_.load(std::memory_order_relaxed) || revoked_.load(std::memory_order_relaxed)) return false;
    // acquire: pairs with the release of the last work, which hands `owed` on
    if (turn_->finished.load(std::memory_order_acquire) != issuedWorks_.load(std::memory_order_relaxed) || turn_->owed > 0) return false;
    stopAgain();
    return true;
  }
  /// False: it has to wait.
  bool pass(PendingCall& like, const CallRequest& request) {
    like.planned.in = request.in;
    like.planned.out = request.out;
    return exec::host::passEagerly(*turn_, like.eager, like.planned);
  }
  /// Before any other call than runAgain().
  void stopAgain() {
    if (std::exchange(runsAgain_, false)) alone_->giveBack();
  }
  uint64_t takeTicket() {
    const uint64_t ticket = issuedWorks_.load(std::memory_order_relaxed);
    issuedWorks_.store(ticket + 1, std::memory_order_relaxed);
    return ticket;
  }

  const Rank rank_;
  const int32_t ranks_;
  RedOps redOps_;
  const int32_t device_;
  const bool onGpu_;
  const uint64_t hash_;
  Config config_;
  std::shared_ptr<Shared> shared_;

  // From open() on.
  std::atomic<bool> open_ = false;
  std::shared_ptr<Lasting> lasting_;
  std::shared_ptr<exec::host::Turn> turn_;  // lasting_->turn
  connect::Layout layout_ = connect::Layout::natural(0);
  std::shared_ptr<const Sites> sites_;  // null: one host
  topo::CpuSet nearGpu_;  // where threads that serve it belong; empty: anywhere
  plan::Settings settings_;
  std::unique_ptr<plan::Planner> planner_;
  plan::Cache plans_{256};
  Known latest_;                // no message
  static constexpr size_t kKnown = 16;
  std::vector<Known> known_;    // messages, each at its placeOf(); empty before the first
  bool runsAgain_ = false;      // alone_ holds that call, and can make it again
  uint64_t latestEpochs_ = 0;   // of the window, that it takes
  int32_t spins_ = 0;

  std::atomic<uint64_t> issuedWorks_ = 0;  // by the thread that issues them
  uint64_t issuedCollectives_ = 0;
  uint64_t nextEpoch_ = 1;  // of the window; 0 is what fresh cells hold
  std::map<std::pair<bool, std::vector<int32_t>>, uint64_t> childrenOfKind_;
  std::atomic<int32_t> children_ = 0;
  std::unique_ptr<DeviceRank> gpu_;          // null: host devices
  int32_t compared_ = 0;                     // calls on GPUs: which peer compareWithOne() looks at
  bool isGpuLost_ = false;                   // its kernels did not end in time; by the thread that ends the communicator
  std::atomic<bool> saysWhy_ = false;        // what has ended it was said while nobody waited
  std::unique_ptr<exec::host::Work> alone_;  // reused by runAlone and issueHere; used on the calling thread only
  std::vector<PendingCall*> messages_;       // of the calls that addAll() adds

  // What any thread may ask or end. The flags are exchanged: whoever is second is told.
  std::atomic<bool> finalized_ = false;
  std::atomic<bool> isFinalizedTold_ = false;  // the others know
  std::atomic<bool> revoked_ = false;
  std::atomic<uint64_t> busyUntil_ = 0;  // works; by the thread that issues them
  ErrorLatch poison_;
  std::mutex setupMutex_;
  std::vector<std::shared_ptr<Setup>> setups_;      // under way, as far as state() knows
  std::vector<std::shared_ptr<Opening>> openings_;  // the same
  std::atomic<bool> settingUp_ = false;             // either holds something
};

}  // namespace tutti::comm
