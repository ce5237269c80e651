// The jobs of one communicator, which live and end together.
//
// Owner: the communicator. Any thread, except that destruction is the last call.
// 1. Adding a job never waits: it makes its connection while the engine is driven.
// 2. When abort() or the destructor returns, no job of the group touches a pipe or a buffer any more.
// 3. A job that fails trips the group's latch; the others go on until somebody aborts them.
// 4. Jobs live as long as the group, whatever their state. A pipe, and what its messages refer to, outlives its job or an abort().
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/error_latch.h"
#include "core/status.h"
#include "progress/engine.h"
#include "progress/recv_job.h"
#include "progress/send_job.h"

namespace tutti::progress {

struct SendSpec {
  local::PipeView pipe;  ///< written by a SendEnd of this process
  Peer peer;
  int32_t device = 0;
};

struct RecvSpec {
  local::PipeView pipe;  ///< read by a RecvEnd of this process, which may have offers
  Peer peer;
  int32_t device = 0;
  uint64_t mostBytes = uint64_t{1} << 32;    ///< a longer message is an error of the peer
  std::atomic<uint64_t>* heard = nullptr;    ///< when given: gets the signature of each message that has come; outlives the group
};

class JobGroup {
 public:
  /// `latch`, when given, is tripped by the first failure; both must outlive the group.
  explicit JobGroup(Engine& engine, ErrorLatch* latch = nullptr) : engine_(engine), latch_(latch) {}
  JobGroup(const JobGroup&) = delete;
  JobGroup& operator=(const JobGroup&) = delete;
  ~JobGroup();

  /// Connections added from now on are made for that communicator; before, for nobody in particular. Errors are the network's.
  Status serve(const net::Use& use);

  /// Begins when SendJob::setHandle() was called (which may be right away) and the engine was kicked, or is driven.
  SendJob* addSend(const SendSpec& spec);
  /// Listens; `handle` is to reach the sender over a channel that is authenticated and secret.
  Result<RecvJob*> addReceive(const RecvSpec& spec, net::Handle* handle);

  /// Whether every job has its connection or is final.
  bool settled() const;
  /// Ends all jobs in order: what was pushed is sent first. Drives the engine meanwhile. What is left after `timeout` is aborted, and
  /// that is an error.
  Status close(Nanoseconds timeout);
  /// Ends all jobs at once.
  void abort();
  /// Whether any of these jobs of the group has a message under way.
  bool isUnderWay(std::span<const SendJob* const> jobs);
  /// The address of the other side of a connection with the rank that is there; empty: none is.
  std::string addressOf(Rank peer) const;
  /// The first failure of a job.
  Status status() const;
  struct Failure {
    Rank peer;
    Status status;
  };
  /// All of them, in the order in which they were noticed: what broke later may be a consequence.
  std::vector<Failure> failures() const;

 private:
  void stopAll();
  net::Network& network() const;
  template <class Body>
  void forEach(Body&& body) const;

  Engine& engine_;
  ErrorLatch* const latch_;
  mutable std::mutex mutex_;  ///< protects what follows, not the jobs
  std::shared_ptr<net::Network> own_;  ///< of the communicator; null: the engine's
  std::vector<std::unique_ptr<Job>> jobs_;
};

}  // namespace tutti::progress
