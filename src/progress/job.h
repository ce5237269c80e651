// A job: one direction of one remote pipe, from set-up to its end.
//
// Owner: its JobGroup. state(), status(), peer(), setHandle(), and failedNs() once state() is Failed, may be called by any thread;
// everything else runs under the engine's lock.
// 1. States only move on: SettingUp → Running → Ended, Failed or Closed; the last three are final.
// 2. A job in a final state has no connection: it touches neither the pipe nor any buffer any more.
// 3. Its error names the peer: rank, host, and the address where that is known.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "core/error_latch.h"
#include "core/ids.h"
#include "core/status.h"
#include "progress/poller.h"
#include "transport/net/network.h"

namespace tutti::progress {

namespace net = transport::net;

/// Who is at the other end: for messages to people.
struct Peer {
  Rank rank;
  std::string host;
};

enum class JobState : uint8_t {
  SettingUp,  ///< no connection yet
  Running,
  Ended,   ///< receiving: the peer took its leave, with nothing under way (a sender runs on, and fails when it has to send)
  Failed,  ///< see status()
  Closed,  ///< by us: closed or aborted
};

/// What a pass learns from a job.
struct Advance {
  bool moved = false;
  bool waits = false;  ///< for the kernel or the peer, with data under way
};

class Job : public Watcher {
 public:
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  virtual ~Job() = default;

  JobState state() const { return state_.load(std::memory_order_acquire); }  // pairs with the release in finish() and run()
  bool final() const { return state() > JobState::Running; }
  /// The error of a Failed job.
  Status status() const;
  /// When a Failed job did, by the steady clock.
  int64_t failedNs() const { return failedNs_; }
  const Peer& peer() const { return peer_; }

  // For the engine and the group, under the engine's lock:

  /// Moves on as far as it can without waiting.
  Advance advance(Poller& poller);
  void onEvent() override { stirred = told = true; }
  /// A try is worth it although no event came.
  void poke() { stirred = true; }
  /// Ends it at once: destroys the connection. Politely: the peer is told that this is no failure.
  void stop(Poller& poller, JobState how, bool politely = false);
  /// Ends it when nothing is under way any more.
  void close() { closing = true; }
  virtual bool receives() const = 0;
  /// The address of the other side, also once the connection has gone; empty: there was none.
  const std::string& peerText() const { return peerText_; }
  /// A network whose comms have no descriptors is asked again and again.
  bool blind() const { return blind_; }

 protected:
  Job(Peer peer, ErrorLatch* latch) : peer_(std::move(peer)), latch_(latch) {}

  /// Tries to get a connection. Ready: start() may run.
  virtual Poll connect() = 0;
  virtual std::span<const int> setUpDescriptors() const { return {}; }
  /// The peer may have a connection already that this side has not: it is not left without a word.
  virtual bool reaches() const { return false; }
  /// Once, when there is a connection.
  virtual Status start() = 0;
  virtual Advance move() = 0;
  /// Nothing is under way: it may close.
  virtual bool idle() const = 0;
  virtual net::Comm* comm() = 0;
  /// Destroys connection and set-up.
  virtual void disconnect() = 0;

  /// Ends it with an error. The words say what happened; the peer is added.
  void fail(const Status& why);
  void failComm();
  bool poked() const { return stirred || blind_; }
  /// fail() has been called.
  bool isBroken() const { return broken_; }
  /// Any thread: connect() may get further than it did.
  void nudge() { nudged_.store(true, std::memory_order_release); }  // pairs with advance()

  bool stirred = true;    ///< an event came, or nobody has tried yet: a try is worth it
  bool told = false;    ///< an event came since check() was asked last
  bool closing = false;
  bool peerLeft = false;

 private:
  bool settle(Poller& poller);
  bool setUp(Poller& poller);
  void watch(Poller& poller, std::span<const int> descriptors);
  void unwatch(Poller& poller);

  const Peer peer_;
  std::string peerText_;
  ErrorLatch* const latch_;  ///< tripped when it fails; may be null
  std::atomic<JobState> state_{JobState::SettingUp};
  ErrorLatch failure_;
  int64_t failedNs_ = 0;  ///< before state_ says so
  std::vector<int> watched_;
  std::atomic<bool> nudged_{false};
  bool blind_ = false;
  bool broken_ = false;  ///< fail() was called in this pass
};

}  // namespace tutti::progress
