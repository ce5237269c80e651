// One communicator's share of a launch: chains of operations, each chain in order, all chains at the same time.
//
// Owner: the Launch. One driving thread at a time; never blocks, but for half a second at most when it has met a dead peer.
// 1. Work of one communicator runs in ticket order, whatever streams it was issued on.
// 2. When advance() has returned Ready or Failed, no peer touches the caller's buffers any more.
// 3. A failure trips the latches of all ranks of the hub: a peer in this process is told, not left waiting.
// 4. After an abort the communicator may be gone while works still wait on streams: they end without touching more than the Turn
//    and what it keeps alive.
// 5. A work that is dropped unfinished fails, so that nobody waits for it.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "core/clock.h"
#include "exec/host/operation.h"
#include "exec/host/verdict.h"
#include "exec/host/wait.h"
#include "observe/flight_recorder.h"
#include "transport/local/hub.h"

namespace tutti::exec::host {

/// Per communicator, shared by its works, which may outlive it on a stream: who it is, and whose turn it is.
struct Turn {
  std::shared_ptr<transport::local::Hub> hub;
  Rank rank;
  bool isCrowded = false;  ///< ranks share cores: a wait looks at who needs the one that it holds. Set before the first work
  bool comparesLate = true;  ///< ranks stay closer together in repeated calls than boards are long. Set before the first work
  bool checks = true;  ///< false: calls are not compared, waits never give up; to measure what that costs. Set before the first work
  /// Ends the waits of ranks whose process has died, if nobody else tells of it. Called by who waits; null: there are no other processes.
  /// Set before the first work.
  void (*lookForDead)(transport::local::Hub& hub) = nullptr;
  Nanoseconds silence = std::chrono::seconds(10);  ///< a wait this long is explained in the log, once. Set before the first work
  /// Of the rank's FlightMemory. Written under `recording` once streams' threads may have news beside the calling thread, as record()
  /// sees to; without it by a call that runs alone, before which all works of streams have ended.
  observe::FlightRecorder recorder;
  std::atomic_flag recording;
  std::atomic<bool> isShared = false;  ///< they may. Set by the calling thread before the first work is queued
  /// Longest wait in nanoseconds; 0: no limit. Any thread writes, the driving thread reads: the value is all that matters.
  std::atomic<int64_t> timeoutNs{0};
  /// The ticket whose turn it is. Written by the driving thread (release); pairs with the acquire of the next work and of finalize.
  std::atomic<uint64_t> finished{0};

  // What the rank has begun so far. Used by the work whose turn it is, and handed on with `finished`; by the calling thread when all works
  // have ended.
  uint64_t begunCollectives = 0;
  std::vector<uint64_t> sent;  ///< messages to each rank; empty before the first message
  std::vector<uint64_t> received;

  /// The latest call whose data flows one way only, and how many like it, right before it and it included, have not been compared yet.
  Call oneWay;
  uint64_t owed = 0;

  /// Counts a message; its number among those of the pair.
  uint64_t numberMessage(int32_t peer, bool receives) {
    std::vector<uint64_t>& counts = receives ? received : sent;
    if (counts.empty()) counts.resize(static_cast<size_t>(hub->ranks()));
    return counts[static_cast<size_t>(peer)]++;
  }

  void record(const observe::FlightEvent& event, observe::FlightKind kind) {
    if (!recorder.isOn()) return;
    if (!isShared.load(std::memory_order_relaxed)) return recorder.record(event, kind);  // only its own thread has news, or it has set it
    while (recording.test_and_set(std::memory_order_acquire)) cpuPause();  // pairs with clear()
    recorder.record(event, kind);
    recording.clear(std::memory_order_release);
  }
};

class Work {
 public:
  /// One-way calls like the one before that may be compared later: as many as fit between two looks at the lines that peers write in every
  /// call, which have to come over each time.
  static constexpr uint64_t kMostOwed = 32;

  explicit Work(std::shared_ptr<Turn> turn) : turn_(std::move(turn)), member_(&turn_->hub->member(turn_->rank)) {}
  ~Work() { abandon(); }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  /// Empties it for new calls.
  void clear();
  /// Ready to run what was added. `ticket`: how many works of the communicator come before this one.
  void start(uint64_t ticket);
  void reset(uint64_t ticket) {
    clear();
    start(ticket);
  }
  /// Once its only call has run to its end: whether runAgain() can make calls like it, as long as the rank has no other call.
  bool canRunAgain();
  /// Makes that call once more: another number, other buffers, another epoch of the window. A work for a call that nobody else sees: it
  /// takes no ticket, and all works before it must be finished. Failed: nothing has been done, the call is to be made in the ordinary way.
  /// Pending: the work is now one with the ticket after all others, to be driven to its end. std::bad_alloc: it has been abandoned.
  Poll runAgain(const void* in, void* out, uint64_t sequence, uint64_t windowEpoch);
  /// To be called before another work of the rank starts.
  void giveBack();

  /// Opens a new chain; calls added next belong to it.
  void beginChain();
  PlannedCall& add(PlannedCall call) { return chains_[used_ - 1].calls.emplace_back(std::move(call)); }

  Poll advance();
  /// For waits that last, after a try that moved nothing: compares the call that is under way with what the peers have come to, and
  /// fails the work when its wait cannot end or has taken longer than the deadline.
  void inspect(Nanoseconds now);
  /// Where ranks share cores: whether one that was last seen on the core that the calling thread holds may have something to do that this
  /// work waits for. It can go on only when this one gives way.
  bool needsThisCore();
  /// Whether the communicator has failed: the work will, whenever it runs.
  bool isCondemned() const { return member_->latch.tripped(); }
  /// Fails the work, if it is not finished, instead of running it.
  void cancel(Status cause);
  /// Fails the work, if it is not finished, where there is no memory to say why.
  void abandon() noexcept;
  bool moved() const { return moved_; }
  /// Also when it has failed.
  bool isFinished() const { return finished_; }
  /// What carries its pipes to other hosts; null where there is none.
  transport::local::Remote* remote() const { return turn_->hub->remote(); }
  const Status& status() const { return status_; }
  /// With all works of the communicator at their end: compares what was left to be compared later, and fails as a call would.
  Status settleOwed();

 private:
  struct Chain {
    std::vector<PlannedCall> calls;
    size_t next = 0;  // the call that runs or runs next
    bool running = false;
    bool repeats = false;   // isRepeated(), for a call whose data flows one way
    bool isNoted = false;   // the recorder has been told that it started
    bool peerGone = false;  // an earlier inspection saw that the peer of this message had departed
    Operation operation;

    PlannedCall& current() { return calls[next]; }
    const PlannedCall& current() const { return calls[next]; }
  };
  /// A wait that has lasted, from its first inspection to the next movement.
  struct Episode {
    bool lasts = false;
    bool published = false;
    bool warned = false;
    uint64_t number = 0;  // of the wait, for other hosts: they have been told; 0: not yet
    Nanoseconds told{0};
    uint64_t unmet = 0;  // what was missing when it was published
    bool isSending = false;  // something was on its way to another host
    Nanoseconds looked{0};   // when that was found out
    Nanoseconds since{0};
    Nanoseconds latest{0};
  };

  Poll advanceAll();
  Poll advanceChain(Chain& chain);
  void begin(Chain& chain);
  void announce(PlannedCall& call);
  void noteStart(Chain& chain);
  void goOn(const void* in, void* out, uint64_t sequence, uint64_t windowEpoch);
  Poll fail(Outcome outcome);
  Poll giveUp();
  bool leaveBuffers() noexcept;
  void markFinished() noexcept;

  // work_wait.cc
  bool compareWithPeers(const Call& call, uint64_t before = 0);
  bool compareOneWay(const PlannedCall& planned, bool repeats);
  bool compareOwed();
  /// Whether `call` follows the latest one-way call and is like it.
  bool isRepeated(const Call& call) const { return call.sequence == turn_->oneWay.sequence + 1 && call.isLike(turn_->oneWay); }
  bool lookForDeparted(Chain& chain);
  bool lookForDeadlock(Nanoseconds now);
  bool lookAtDeadline(Nanoseconds now);
  void tellOtherHosts(Nanoseconds now);
  bool findFault(Nanoseconds now);
  void warnOfWait();
  void tellWhereItEnded(const transport::local::RankWait& own);
  void explainFailure(const Chain& chain);
  Poll failStep();
  transport::local::RankWait standing() const;
  uint64_t countUnmet() const;
  int64_t waitedMs() const;
  std::string describeWait(const Chain& chain) const;
  void stopWatching();

  std::shared_ptr<Turn> turn_;
  transport::local::Member* member_;  // the rank's place at the turn's hub
  uint64_t ticket_ = 0;
  bool moved_ = false;
  bool finished_ = true;       // nothing to run yet
  std::vector<Chain> chains_;  // kept from use to use, so that a repeated call allocates nothing
  size_t used_ = 0;
  std::atomic<uint64_t>* endOfRun_ = nullptr;  // on the own board, of the call of runAgain()
  bool isOneWay_ = false;                      // that call
  Episode episode_;
  uint64_t waitsTold_ = 0;  // to other hosts
  Outcome outcome_;  // why the work is about to fail
  Status status_;
};

}  // namespace tutti::exec::host
