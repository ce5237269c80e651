// One communicator's share of a launch: chains of operations, each chain in order, all chains at the same time.
//
// Owner: the Launch. One driving thread at a time; never blocks.
// 1. Work of one communicator runs in ticket order, whatever streams it was issued on.
// 2. When advance() has returned Ready or Failed, no peer touches the caller's buffers any more.
// 3. A failure trips the latches of all ranks of the hub: a peer in this process is told, not left waiting.
// 4. After an abort the communicator may be gone while works still wait on streams: they end without touching more than the Turn
//    and what it keeps alive.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "exec/host/operation.h"
#include "exec/host/wait.h"
#include "observe/flight_recorder.h"
#include "transport/local/hub.h"

namespace tutti::exec::host {

/// Per communicator, shared by its works, which may outlive it on a stream: who it is, and whose turn it is.
struct Turn {
  std::shared_ptr<transport::local::Hub> hub;
  Rank rank;
  observe::FlightRecorder recorder;  ///< written under `recording`: the calling thread and a stream's thread may both have news
  std::atomic_flag recording;
  /// The ticket whose turn it is. Written by the driving thread (release); pairs with the acquire of the next work and of finalize.
  std::atomic<uint64_t> finished{0};

  void record(observe::FlightEvent event, observe::FlightKind kind) {
    if (!recorder.isOn()) return;
    event.kind = kind;
    while (recording.test_and_set(std::memory_order_acquire)) cpuPause();  // pairs with clear()
    recorder.record(event);
    recording.clear(std::memory_order_release);
  }
};

class Work {
 public:
  explicit Work(std::shared_ptr<Turn> turn) : turn_(std::move(turn)) {}

  /// Empties it for new calls. `ticket`: how many works of the communicator come before this one.
  void reset(uint64_t ticket);

  /// Opens a new chain; calls added next belong to it.
  void beginChain();
  void add(PlannedCall call) { chains_[used_ - 1].calls.push_back(std::move(call)); }

  Poll advance();
  /// For waits that last: compares the call that is under way with what the peers have come to. Fails the work when they disagree, or
  /// when it waits for a rank that has destroyed its communicator.
  void inspect();
  /// One warning that names the call under way and whom it waits for.
  void warnOfWait(int64_t seconds) const;
  bool moved() const { return moved_; }
  const Status& status() const { return status_; }

 private:
  struct Chain {
    std::vector<PlannedCall> calls;
    size_t next = 0;  // the call that runs or runs next
    bool running = false;
    bool peerGone = false;  // an earlier inspection saw that the peer of this message had departed
    Operation operation;
  };
  Poll advanceChain(Chain& chain);
  void begin(Chain& chain);
  Poll fail(Status cause);
  Poll giveUp();
  Status compareWithPeers(const PlannedCall& call) const;
  Status lookForDeparted(Chain& chain) const;
  void markFinished();

  std::shared_ptr<Turn> turn_;
  uint64_t ticket_ = 0;
  bool moved_ = false;
  bool finished_ = false;
  std::vector<Chain> chains_;  // kept from use to use, so that a repeated call allocates nothing
  size_t used_ = 0;
  Status status_;
};

}  // namespace tutti::exec::host
