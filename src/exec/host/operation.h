// One collective of one rank on its way: the state of its lanes, moved on by whichever thread drives it.
//
// Owner: the launch it is part of. One thread at a time. Never blocks: advance() does what can be done and returns.
// 1. Finished means that the output is complete, the input may be changed, and no peer reads either any more.
// 2. Nothing is allocated after the first use of an Operation with as many lanes.
// 3. Wait-free against peers: a peer that is late, stopped or gone makes advance() return Pending, never hang.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/call.h"
#include "core/status.h"
#include "exec/host/plan.h"
#include "memory/host_allocator.h"
#include "observe/flight_recorder.h"
#include "transport/local/waits.h"

namespace tutti::exec::host {

/// A planned call, bound to buffers.
struct PlannedCall {
  std::shared_ptr<const HostPlan> plan;  ///< null: a collective of no elements; only a Work takes that
  const void* in = nullptr;   ///< the caller's buffers, as the collective defines them
  void* out = nullptr;
  Call call;                  ///< as its rank made it
  uint64_t signature = 0;     ///< names the call to the peers
  uint64_t windowEpoch = 0;   ///< of the first round, for plans that use the window; each slice takes plan->rounds
  observe::FlightEvent event;  ///< what the flight recorder is to say of the call
  /// The factor of a scaled reduction, in the element type: read from `factorSource` when the call starts, if that is given.
  uint64_t factor = 0;
  const void* factorSource = nullptr;
  /// Whose both buffers are, as far as they are used, if peers in other processes may map them; null: they may not. It no longer holds when
  /// memory has been taken back since: `takenBefore` is exporter->timesTaken() of then.
  memory::HostAllocator* exporter = nullptr;
  uint64_t takenBefore = 0;
};

/// Up to here a message is copied into its slot, so that the sender need not wait until it is read; beyond, a value that lies
/// in a caller's buffer is lent, which saves the copy.
inline constexpr uint64_t kEagerBytes = 4096;

class Operation {
 public:
  /// What a rank waits for is often a few dozen nanoseconds away: this many looks are sooner than one way round the driver's loop.
  static constexpr int32_t kLooks = 40;
  /// How often to look before advance() says Pending; kLooks unless somebody else needs the core.
  void setLooks(int32_t looks) { looks_ = looks; }

  /// The call must outlive the operation.
  void start(const PlannedCall& call);

  /// Whether a call like the latest one can be made by runAgain(): one lane, one slice and nothing lent.
  bool isBrief() const { return !brief_.empty(); }
  /// Instead of start() and the first advance(), for a call that differs from the latest one in what is given here. Returns whether it is
  /// complete, its input and output as after Ready. If not, goOn() makes it one that advance() goes on with, or that has failed: status().
  bool runAgain(const void* in, void* out, uint64_t signature, uint64_t windowEpoch, int32_t looks);
  void goOn();
  /// Tells the senders of all that runAgain() has received.
  void giveBack();
  /// Moves every lane on as far as it goes. After Failed, status() says why; the operation must not be advanced again.
  Poll advance();
  /// Whether the last advance() did anything at all.
  bool moved() const { return moved_; }
  /// After a failure, where somebody may still write to places that were offered (window.h, 4): takes those back, and what they hold is
  /// lost. False: the system has no memory to put there.
  bool takeBack() noexcept;

  const Status& status() const { return status_; }
  /// Whether the latest call's results go past the cache.
  bool storesPast() const { return stores_.isPast; }
  /// Whom the first unfinished lane waits for and what for, in words.
  std::string describeWait() const;
  /// One of the ranks without which it cannot move; nothing: there is none.
  std::optional<Rank> awaited() const;
  /// Where the operation stands and what each lane waits for. Fills all of `wait` that it knows.
  void describe(transport::local::ChainWait& wait) const;
  /// How many things describe() would list as awaited. While nothing moves it only falls: the same number is the same list.
  uint64_t countUnmet() const;
  /// Whether all that its lanes wait for can come while the ranks that `isThere` says yes to stand still, as far as can be seen from here:
  /// those have arrived where it waits for arrivals. Who else they keep waiting, as in pipes, it cannot know.
  bool needsNoneOf(const std::function<bool(Rank)>& isThere) const;
  /// After Failed: the signature that came instead of the own one, if that was the reason.
  std::optional<uint64_t> foreignSignature() const { return foreign_; }

 private:
  struct Lane {
    const BoundLane* steps = nullptr;
    int32_t channel = 0;
    int32_t slice = 0;
    uint32_t next = 0;    // step of this slice
    int32_t given = 0;    // slices that another lane has handed over to this one
    uint32_t firstOfChannel = 0;  // index of lane 0 of the same channel
    bool finished = false;
  };

  /// How a step of a brief plan is carried out: by run(), or in fewer instructions.
  enum class BriefKind : uint8_t {
    General,
    Move,    ///< passes one value on that fits into the heads of messages, or copies it, without computing
    Put,     ///< into a peer's cell
    Own,     ///< into the own cell, where only the own Fold would look: it is left out, and Fold takes the input
    Left,    ///< what publishing makes superfluous
    Arrive,
    Await,
    Load,
    Fold,
  };
  /// What of a step is the same in every call of a brief plan.
  struct BriefStep {
    BriefKind kind = BriefKind::General;
    bool isFromIn = false;  // its own value is input
    bool writes = false;    // the output
    int8_t numTo = 0;
    uint8_t round = 0;
    Rank peer;              // whom its value comes from
    algo::Range range;      // rangeOf()
    uint64_t bytes = 0;     // of the range
    uint64_t from = 0;      // in bytes: where the own value lies in its buffer
    uint64_t to = 0;        // where the step writes in the output
    transport::local::RecvEnd* source = nullptr;  // Move; null: its own value
    transport::local::SendEnd* const* targets = nullptr;
    struct Cell {
      transport::local::CellHead* head = nullptr;
      std::byte* payload = nullptr;
    };
    Cell cells[2];  // by bank: the one that it is about
    const std::byte* ahead[2] = {};  // Await, by bank: what is read next, and how many lines of it
    int8_t numAhead = 0;
    const BoundStep* step = nullptr;
  };

  /// Messages of a lane that a network brings, straight to where they are wanted (transport/local/offer.h).
  struct Wanted {
    transport::local::RecvEnd* end = nullptr;
    const BoundLane* lane = nullptr;
    int32_t channel = 0;
    std::vector<uint32_t> steps;  // of a slice that receive from the end, in order
    uint64_t before = 0;          // messages that it had received when the call began
    uint64_t next = 0;            // of the call's: up to there places have been offered, where any are
  };

  /// Where a value that goes to several is written once; null: each gets its own.
  struct Lead {
    std::byte* space = nullptr;
    bool isWritten = false;
  };

  template <class Note>
  void forEachUnmet(const Lane& lane, Note&& note) const;
  transport::local::LaneWait waitOf(const Lane& lane) const;
  void layOutLanes();
  void layOutBriefly();
  void layOutOffers();
  bool isWanted(const BoundStep& step) const;
  void beginOffers();
  void offerAhead(const Lane& lane, const transport::local::RecvEnd& end);
  void offer(Wanted& wanted);
  BriefStep briefOf(const BoundStep& step) const;
  bool isBriefStore(const BoundStep& step) const;
  bool runBriefly(const Lane& lane, const BriefStep& step);
  uint32_t runSteps(const Lane& lane, uint32_t first);
  bool move(const BriefStep& step);
  void put(const BriefStep& step) const;
  bool load(const Lane& lane, const BriefStep& step);
  bool fold(const Lane& lane, const BriefStep& step);
  void prepareCellsBriefly() const;
  void publish(std::vector<BriefStep>& brief);
  bool publish(std::vector<BriefStep>& brief, uint8_t round);
  void lookAhead(BriefStep& await, const std::vector<BriefStep>& brief) const;
  /// Where rank `peer` arrives for this one.
  const transport::local::CellHead& arrivalOf(const BoundStep& step, uint64_t epoch, Rank peer) const {
    return step.round == publishedRound_ ? *cellsOf_[epoch % 2][static_cast<size_t>(peer.value)].head : step.window->head(epoch, peer);
  }
  bool advanceBriefly(Lane& lane);
  bool advanceLane(Lane& lane);
  void prepareCells() const;
  bool run(const Lane& lane, const BoundStep& step);
  bool runPipe(const Lane& lane, const BoundStep& step);
  bool runStore(const Lane& lane, const BoundStep& step);
  void arrive(transport::local::CellHead& head, uint64_t epoch) const;
  bool runAwait(const Lane& lane, const BoundStep& step);
  bool runLoadReduce(const Lane& lane, const BoundStep& step);
  bool runLoad(const Lane& lane, const BoundStep& step);
  bool isReturned() const;
  static bool isDrained(const BoundLane& bound);
  /// Calls `note(peer)` for every peer that has not read yet what it was lent.
  template <class Note>
  void forEachBorrower(Note&& note) const {
    for (size_t peer = 0; peer < lent_.size(); ++peer) {
      // acquire: the peer's reads come before what this rank's caller does next; pairs with runLoad and runLoadReduce
      if (lent_[peer] > plan_->windows[peer]->returned[plan_->rank.value].value.load(std::memory_order_acquire))
        note(Rank(static_cast<int32_t>(peer)));
    }
  }
  bool handOver(const Lane& lane, const BoundStep& step);
  void send(transport::local::SendEnd& end, const std::byte* stable, const std::byte* value, uint64_t bytes, Lead& lead);
  void help(const BoundLane& bound);
  const std::byte* shareCopy(const Source& source, uint64_t bytes, std::byte* to);
  uint64_t offerFor(const BoundStep& step, const algo::Range& range);
  bool isPlaced(const BoundStep& step, uint64_t epoch, const std::byte* place) const;
  bool loadRest(const BoundStep& step, uint64_t epoch, std::byte* to, uint64_t bytes);
  bool findTargets(const BoundStep& step, uint64_t epoch, uint64_t bytes);
  uint64_t findTarget(const BoundStep& step, uint64_t epoch, Rank peer, uint64_t bytes);
  void combineToAll(const algo::Range& range);
  void combineToAll(const algo::Range& range, bool isPast);
  const std::byte* lentBy(transport::local::Neighbour* owner, uint64_t address, uint64_t bytes, std::byte* to, size_t operand);
  bool mayLend(const std::byte* stable, uint64_t bytes, uint64_t space, uint32_t reach) const;
  /// Whether a peer speaks of the call that this operation carries out. If not, the operation has failed and says why.
  bool acceptCall(uint64_t signature, Rank peer) {
    if (signature == signature_) [[likely]]
      return true;
    return refuseCall(signature, peer);
  }
  bool acceptSize(uint64_t bytes, Rank peer, uint64_t expectedBytes) {
    if (bytes == expectedBytes) [[likely]]
      return true;
    return refuseSize(bytes, peer, expectedBytes);
  }
  bool refuseCall(uint64_t signature, Rank peer);
  bool refuseSize(uint64_t bytes, Rank peer, uint64_t expectedBytes);
  void combine(std::byte* dst, const void* const* sources, int numSources, uint64_t elems, bool ownFirst, bool last) const;
  algo::Range rangeOf(const Lane& lane, const BoundStep& step) const;
  const std::byte* source(algo::ChunkRef ref, const algo::Range& range) const;
  std::byte* destination(const algo::Range& range) const;
  /// What the step writes; `range` as rangeOf() has it.
  std::byte* placeOf(const BoundStep& step, const Lane& lane, const algo::Range& range) const;
  /// Where in the output that lies.
  uint64_t placeBytes(const BoundStep& step, const Lane& lane, const algo::Range& range) const;
  const std::byte* contentOf(const BoundStep& step, uint64_t epoch, Rank writer, uint64_t bytes, std::byte* to);
  uint64_t epochOf(const Lane& lane, const BoundStep& step) const {
    return windowEpoch_ + static_cast<uint64_t>(lane.slice) * static_cast<uint64_t>(plan_->rounds) + step.round;
  }

  std::shared_ptr<const HostPlan> plan_;  // of the latest call: its lanes are kept for the next one like it
  const std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
  uint64_t signature_ = 0;
  uint64_t windowEpoch_ = 0;
  Reduction reduction_;
  CacheChoice::Call stores_;    // where the results go: past the cache or through it
  int64_t beganNs_ = 0;         // of plans with a choice
  int32_t looks_ = kLooks;
  bool moved_ = false;
  uint32_t unfinished_ = 0;
  std::vector<Lane> lanes_;
  std::vector<uint32_t> turns_;  // the lanes in the order in which they are looked at
  std::vector<BriefStep> brief_;  // of the only lane's steps; empty: the plan is not brief
  uint32_t briefDone_ = 0;        // steps of the latest runAgain()
  bool isBriefLent_ = false;      // a message of it may be lent
  uint64_t briefOwn_ = 0;         // Own: where the value lies in the input, in bytes
  std::vector<BriefStep::Cell> cellsOf_[2];  // by bank and rank: where that one publishes; empty: nobody does
  int32_t publishedRound_ = -1;              // in which round; -1: none
  std::vector<Wanted> wanted_;      // those with an offer worth making
  std::vector<const void*> cells_;        // LoadReduce: one source a rank
  std::vector<const void*> tileSources_;  // the same from a tile on
  std::vector<std::vector<std::byte>> copies_;  // by operand: what neighbours lent, where it has to be copied
  memory::HostAllocator* exporter_ = nullptr;  // PlannedCall::exporter, as long as that holds
  std::vector<uint64_t> lent_;      // by peer: the last epoch in which it was lent something; 0: never
  struct Target {
    std::byte* here = nullptr;  // as this process sees it
    uint64_t from = 0;          // what of it is written: in bytes from there
    uint64_t to = 0;
    bool isInWindow = false;    // only where the call goes past the cache; else it is an output
    bool isPast = false;        // of what is in a window: the cache
  };
  static constexpr uint64_t kInCell = 1;
  uint64_t published_ = 0;          // the last epoch in which the own cell was written for all others; 0: none
  std::vector<Target> targets_;     // of the LoadReduce under way, beside the own output
  std::vector<uint64_t> placedAt_;  // by peer: the offer of its memory that has this slice's result; 0: none; kInCell: a cell
  bool hasOffered_ = false;         // places, to another process
  Status status_;
  std::optional<uint64_t> foreign_;
};

}  // namespace tutti::exec::host
